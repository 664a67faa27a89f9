"""Speculation in agent frameworks: a module for each, which imports its framework."""
