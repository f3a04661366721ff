"""Run every benchmark; exit with 1 if a claim does not hold."""

import sys

from benchmarks import forward_overhead

BENCHMARKS = [forward_overhead]

if __name__ == "__main__":
    results = [benchmark.run() for benchmark in BENCHMARKS]
    sys.exit(0 if all(results) else 1)
