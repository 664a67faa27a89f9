"""The records of `headstart.models`: states of shared models, and the marker of a partition."""
