"""A reader that many threads use: none stands in another's way, and nothing is left behind."""

from __future__ import annotations

import gc
import threading
from typing import Any

import pytest

from headstart.modes import ModeMirror, ModeQuestion
from headstart.thresholds import Thresholds


class Client:
    """A connection of redis-py, which is open for as long as somebody has it."""

    def close(self) -> None:
        return None


def test_a_thread_that_has_ended_keeps_no_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Thresholds, "_connect", staticmethod(lambda *_, **__: Client()))
    reader = Thresholds("redis://127.0.0.1:1")
    threads = [threading.Thread(target=reader._client) for _ in range(5)]
    for thread in threads:
        thread.start()
    mine = reader._client()
    for thread in threads:
        thread.join()
    gc.collect()
    assert list(reader._clients) == [mine]
    reader.close()


def test_modes_are_read_while_they_are_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    modes = ModeMirror(limit=10, staleness_s=1.0, clock=lambda: 0.0)
    for agent in ("a", "b", "c"):
        modes.filled(modes.question("t", agent), (None, (b"act", None)), 0.0)
    question = ModeMirror.question

    def read_meanwhile(self: ModeMirror, tenant: str, agent: str | None) -> Any:
        assert modes.hit("t", "a") == "act"  # as another thread may at any time
        return question(self, tenant, agent)

    monkeypatch.setattr(ModeMirror, "question", read_meanwhile)
    held: list[ModeQuestion] = modes.held()
    assert {each.owner for each in held} == {("t", "a"), ("t", "b"), ("t", "c")}
