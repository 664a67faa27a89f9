"""Commands that run and watch a system: up, demo, worker, status, top, doctor, topics."""
