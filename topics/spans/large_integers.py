"""Texts in place of integers beyond 64 bits, which events cannot have."""

from __future__ import annotations

from typing import Any

from headstart.events.exact_json import is_large


def large_integers_as_texts(value: Any) -> Any:
    """Return a value of JSON with a text of the digits for each integer beyond 64 bits."""
    if isinstance(value, dict):
        return {key: large_integers_as_texts(each) for key, each in value.items()}
    if isinstance(value, list):
        return [large_integers_as_texts(each) for each in value]
    return str(value) if is_large(value) else value
