"""The worker that learns shared models from `headstart.decisions`."""
