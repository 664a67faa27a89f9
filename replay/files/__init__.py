"""Input and output files: compression, CSV, JSON lines, times, safe replacement."""
