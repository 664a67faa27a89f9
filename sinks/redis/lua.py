"""Loads the Lua scripts, each with the shared functions that it calls."""

from __future__ import annotations

from pathlib import Path
from typing import Final

_HERE: Final = Path(__file__).parent
_SHARED: Final = ("set_aside",)
"""Shared functions, each in a file of its name: a script cannot load another."""


def script(name: str) -> str:
    """Return the text of a script."""
    text = _read(name)
    return "".join(_read(each) for each in _SHARED if f"{each}(" in text) + text


def _read(name: str) -> str:
    return (_HERE / f"{name}.lua").read_text(encoding="utf-8")
