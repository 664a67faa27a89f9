"""Benchmarks, each side by side with its anchor."""
