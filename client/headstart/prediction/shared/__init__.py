"""Learning that executors share: what they emit, what a worker makes of it, what they load."""
