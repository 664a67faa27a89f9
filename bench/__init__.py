"""Benchmarks: each runs side by side with its anchor, on the same data, in one run."""
