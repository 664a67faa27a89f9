"""The memory worker: keeps the episodes up to date with the stored events."""
