"""Reports of a worker's state: files, HTTP, metrics, probes."""
