"""A batch in, a database changed: episodes and history to Postgres, thresholds to Redis.

Knows batches, offsets and databases. Knows nothing of Faust, consumers or the CLI.
"""
