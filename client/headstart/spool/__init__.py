"""The spool: segments on disk that survive kill -9, their reader and their locks."""
