"""What a run has shown so far, in order, for predictors that are functions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple, overload

from headstart.prediction.interface import ToolCall

USER: Final = "user"
AGENT: Final = "agent"
CALLS: Final = "calls"
RESULT: Final = "result"


class HistoryEntry(NamedTuple):
    """One thing that a run has shown.

    `kind`: `user` and `agent` have a `text`; `calls` has the calls of one turn, none for a reply;
    `result` has the `tool`, its `result` (a JSON value, or text) and whether it was an `error`.
    """

    kind: str
    text: str = ""
    calls: tuple[ToolCall, ...] = ()
    tool: str = ""
    result: object = None
    error: bool = False


class HistoryView(Sequence[HistoryEntry]):
    """A read-only view of a run, oldest entry first; it grows with the run.

    `agent`: the model that drives the agent; `user_id`: the user; both "" if unknown.
    """

    __slots__ = ("_entries", "agent", "user_id")

    def __init__(self, entries: list[HistoryEntry], agent: str = "", user_id: str = "") -> None:
        self._entries, self.agent, self.user_id = entries, agent, user_id

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[HistoryEntry]:
        return iter(self._entries)

    @overload
    def __getitem__(self, place: int) -> HistoryEntry: ...

    @overload
    def __getitem__(self, place: slice) -> Sequence[HistoryEntry]: ...

    def __getitem__(self, place: int | slice) -> HistoryEntry | Sequence[HistoryEntry]:
        return self._entries[place]

    @property
    def calls(self) -> Sequence[ToolCall]:
        """All calls so far, oldest first."""
        return [call for entry in self._entries for call in entry.calls]

    @property
    def results(self) -> Mapping[str, object]:
        """The last result of each tool."""
        return {entry.tool: entry.result for entry in self._entries if entry.kind == RESULT}

    @property
    def last_user_message(self) -> str:
        """The user's last message; "" if there is none."""
        texts = (entry.text for entry in reversed(self._entries) if entry.kind == USER)
        return next(texts, "")
