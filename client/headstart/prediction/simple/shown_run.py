"""What the simple predictors with arguments keep of one run: its events, and its values."""

from __future__ import annotations

from collections.abc import Sequence

from headstart.prediction.interface import ToolCall
from headstart.prediction.simple.argument_mappings import ArgumentMappings
from headstart.prediction.simple.shown_values import ShownValues

USER_TURN = "U"
_FAILED = "!"


class ShownRun:
    """A run's events (tools, `!` behind one that failed, `U` for a turn of the user) and values.

    A subclass guesses from them.
    """

    def __init__(self, mappings: ArgumentMappings) -> None:
        self.events: list[str] = []
        self.values = ShownValues()
        self.mappings = mappings

    def user(self, text: str) -> None:
        """Take in a message of the user."""
        self.events.append(USER_TURN)
        self.values.user(text)

    def said(self, text: str) -> None:
        """Take in a message of the agent."""
        self.values.read_year(text)

    def result(self, tool: str, result: object, *, error: bool = False) -> None:
        """Take in what a call returned."""
        self.values.result(tool, result, error=error)
        if error and self.events:
            self.events[-1] += _FAILED

    def calls(self, calls: Sequence[ToolCall]) -> None:
        """Learn the arguments of calls, and take them in."""
        for call in calls:
            leaves = self.mappings.learn(self.values, call)
            self.events.append(call.tool)
            self.values.called(call.tool, leaves)
