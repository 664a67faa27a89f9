"""Real faults on real parts, with a checker: `python -m tests.chaos`, or `make chaos ROUNDS=n`."""
