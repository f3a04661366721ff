"""Run every benchmark; exit with 1 if a claim does not hold."""

import sys

from benchmarks import all_cnn_step, forward_overhead, mobilenet_head, peer_step, per_sample, training_step

BENCHMARKS = [training_step, peer_step, all_cnn_step, mobilenet_head, per_sample, forward_overhead]

if __name__ == "__main__":
    results = [benchmark.run() for benchmark in BENCHMARKS]
    sys.exit(0 if all(results) else 1)
