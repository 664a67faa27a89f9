"""Runs backtests over processes, resumes them, searches settings."""
