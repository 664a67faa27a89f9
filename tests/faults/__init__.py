"""Real faults on real parts, with a checker: `python -m tests.faults`, or `make chaos ROUNDS=n`."""
