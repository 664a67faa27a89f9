"""The threshold agent: applies events, writes checkpoints, publishes to Redis."""
