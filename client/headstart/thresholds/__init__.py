"""`Thresholds`: reads thresholds, overrides and modes from Redis, through a cache."""
