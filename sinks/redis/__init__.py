"""Redis: publishes, reads and repairs thresholds, overrides and modes."""
