"""Headstart client."""
