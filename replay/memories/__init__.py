"""Evaluates a memory on files of recorded runs, and writes the report."""
