"""`Speculator`: decides whether a guess may start, runs it, and logs its outcome."""
