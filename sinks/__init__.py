"""Writes batches to databases: episodes and history to Postgres, thresholds to Redis.

Independent of Faust, consumers and the CLI.
"""
