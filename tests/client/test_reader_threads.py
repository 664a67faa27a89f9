"""A reader that many threads use: none stands in another's way, and nothing is left behind."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from headstart.thresholds.modes import ModeCache, ModeQuery
from headstart.thresholds.reader import Thresholds


class Client:
    """A connection of redis-py."""

    closed = False

    def hmget(self, _key: str, fields: Any) -> list[None]:
        return [None for _ in fields]

    def close(self) -> None:
        self.closed = True


def test_threads_share_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Client] = []

    def connect(*_: object, **__: object) -> Client:
        made.append(Client())
        return made[-1]

    monkeypatch.setattr(Thresholds, "_connect", staticmethod(connect))
    reader = Thresholds("redis://127.0.0.1:1", staleness_s=0.0)
    for number in range(5):
        thread = threading.Thread(target=reader.get, kwargs={"workflow_type": f"w{number}"})
        thread.start()
        thread.join()
    reader.close()
    assert [client.closed for client in made] == [True]


def test_modes_are_read_while_they_are_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    modes = ModeCache(limit=10, staleness_s=1.0, clock=lambda: 0.0)
    for agent in ("a", "b", "c"):
        modes.store_response(modes.build_query("t", agent), ((None, b"run"), (b"act", None)), 0.0)
    original = ModeCache.build_query

    def read_meanwhile(self: ModeCache, tenant: str, agent: str | None) -> Any:
        assert modes.lookup("t", "a") == "act"  # as another thread may at any time
        return original(self, tenant, agent)

    monkeypatch.setattr(ModeCache, "build_query", read_meanwhile)
    held: list[ModeQuery] = modes.build_refresh_queries()
    assert {each.owner for each in held} == {("t", "a"), ("t", "b"), ("t", "c")}


def test_an_outdated_response_may_only_restrict_the_known_mode() -> None:
    """A process that was stopped asks, and receives at once a change from long before."""
    modes = ModeCache(limit=10, staleness_s=1.0, clock=lambda: 60.0)
    published = b"run"
    asked = modes.build_query("t", None)
    assert modes.store_response(asked, ((None, published), (b"act",)), 0.0) == "act"
    asked = modes.build_query("t", None)
    modes.apply_announcement()
    assert modes.store_response(asked, ((b"off", published), (b"act",)), 60.0) == "off"
    assert modes.lookup("t", None) is None, "it is asked again"
