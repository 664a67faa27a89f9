"""Learns from the log again, and brings the result to the workers."""
