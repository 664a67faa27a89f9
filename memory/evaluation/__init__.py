"""Proves on recorded runs whether a memory helps: each run is asked for before it is learned."""
