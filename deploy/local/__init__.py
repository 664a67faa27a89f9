"""The embedded local stack: broker, Postgres and Redis as child processes."""
