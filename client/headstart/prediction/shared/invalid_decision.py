"""The error of an event that is not learned."""

from __future__ import annotations


class InvalidDecision(ValueError):
    """An event of the topic of decisions has a field that is missing, of another type or out of
    range; the message names it. Nothing has changed."""
