"""The agents that store events, thresholds and notices in Postgres."""
