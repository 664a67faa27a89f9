"""Which tool is called next: counts by context and words, mixed."""
