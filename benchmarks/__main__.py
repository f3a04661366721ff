"""Run every benchmark; exit with 1 if a claim does not hold."""

import subprocess
import sys

BENCHMARKS = (
    "training_step peer_step all_cnn_step mobilenet_head mobilenet_training per_sample forward_overhead mnist_run "
    "continual_grid diagnosis peers_diagnosed"
).split()

if __name__ == "__main__":
    # Each in a process of its own, so that what one imports and allocates is not another's time.
    codes = [
        subprocess.run([sys.executable, "-m", f"benchmarks.{name}"], check=False).returncode for name in BENCHMARKS
    ]
    sys.exit(max(codes))
