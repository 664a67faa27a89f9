"""The workload that shows the whole pipeline."""
