"""A batch in, a database changed: episodes and history to Postgres, thresholds to Redis."""
