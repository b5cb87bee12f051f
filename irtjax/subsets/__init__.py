"""What items are worth: small benchmarks that stand for large ones."""
