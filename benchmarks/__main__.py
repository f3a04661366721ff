"""Run every benchmark, or those named.

Exits with 1 if a claim does not hold or a benchmark fails; else with 2 if one was not run, for want of its data.
"""

import subprocess
import sys

from benchmarks.harness import NOT_RUN

BENCHMARKS = (
    "training_step adamw_step peer_step peer_adam_step all_cnn_step mobilenet_head mobilenet_adamw mobilenet_training "
    "per_sample per_sample_adamw per_sample_overhead ragged lora_step forward_overhead mnist_run continual_grid "
    "diagnosis peers_diagnosed comparison_features comparison_scale comparison_step examples_by_hand ddp_bytes "
    "ddp_step fsdp_bytes attention_mixture"
).split()


def main(names: list[str]) -> int:
    """Run benchmarks; returns the exit code."""
    unknown = [name for name in names if name not in BENCHMARKS]
    if unknown:
        print(f"no benchmark is called {', '.join(unknown)}; there are {', '.join(BENCHMARKS)}")
        return 1
    # Each in a process of its own, so that what one imports and allocates is not another's time.
    codes = {
        name: subprocess.run([sys.executable, "-m", f"benchmarks.{name}"], check=False).returncode
        for name in names or BENCHMARKS
    }
    failed = [name for name, code in codes.items() if code not in (0, NOT_RUN)]
    skipped = [name for name, code in codes.items() if code == NOT_RUN]
    print(f"not held, or failed: {', '.join(failed) or 'none'}; not run: {', '.join(skipped) or 'none'}")
    return 1 if failed else NOT_RUN if skipped else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
