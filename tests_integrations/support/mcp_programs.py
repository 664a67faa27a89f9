"""Starts the programs of the tests of the MCP proxy, and reads what the server noted."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from mcp import StdioServerParameters

HERE = Path(__file__).parent
SERVER = [sys.executable, "-P", str(HERE / "mcp_upstream.py")]
Guesses = Sequence[Sequence[tuple[str, dict[str, Any]]]]


class Notes:
    """What the server noted."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "notes"
        self.path.touch()

    def read(self) -> list[list[str]]:
        """Return all, in their order."""
        lines = self.path.read_text(encoding="utf-8").splitlines()
        return [json.loads(line) for line in lines]

    def begun(self) -> list[tuple[str, str]]:
        """Return the calls that began, by tool and query."""
        return [(tool, query) for what, tool, query in self.read() if what == "begun"]


def environment(notes: Notes) -> dict[str, str]:
    """Return the environment of a program."""
    return {**os.environ, "MCP_NOTES": str(notes.path), "PYTHONPATH": str(HERE)}


def proxied(
    spool: Path, notes: Notes, guesses: Guesses, *, command: Sequence[str] = SERVER, **settings: Any
) -> StdioServerParameters:
    """Return the server as a client starts it, behind a proxy."""
    given = {"spool": str(spool), "guesses": guesses, "read_only": ["search", "lookup"], **settings}
    program = str(HERE / "mcp_proxy_process.py")
    return StdioServerParameters(
        command=sys.executable, args=[program, json.dumps(given), *command], env=environment(notes)
    )
