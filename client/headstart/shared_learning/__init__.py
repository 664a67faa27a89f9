"""Executors that learn together: emits what they learn, and mirrors what all have learned."""
