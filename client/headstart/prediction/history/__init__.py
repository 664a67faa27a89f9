"""What a run has shown so far: texts, results and calls, read up to a limit."""
