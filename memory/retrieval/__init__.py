"""Finds episodes: by equal or similar query, by context, by words; one tenant at a time."""
