"""What a worker reports of itself: files, HTTP, metrics, probes."""
