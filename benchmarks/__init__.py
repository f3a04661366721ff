"""Claims about speed, each a ratio measured in one process. ``python -m benchmarks`` runs all of them."""
