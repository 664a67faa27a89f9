"""Removes secrets and personal data from events before they are stored."""
