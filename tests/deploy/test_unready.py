"""A start that takes too long says which worker waits for what, and why."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from deploy import system
from deploy.local import Addresses, StackConfig
from processing.worker_report import Report
from tests.patience import PATIENCE_S


@pytest.fixture
def closed() -> Iterator[str]:
    """An address at which nothing can be listening: it is bound, and does not listen."""
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        yield f"127.0.0.1:{holder.getsockname()[1]}"


@pytest.mark.integration
def test_each_worker_is_named_with_what_it_waits_for(
    closed: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(system, "READY_S", 0.0)
    starting = system.System(StackConfig(data=tmp_path))
    addresses = Addresses(closed, f"postgresql://{closed}/x", f"redis://{closed}/0")
    try:
        with pytest.raises(TimeoutError) as caught:
            starting._start_workers(addresses)
        for name in ("episodes", "thresholds", "history"):
            assert f"worker {name} " in str(caught.value)
        supervisor = starting.supervisor
        assert supervisor is not None
        wanted = f"worker episodes waits for broker: no Kafka broker answers at {closed}"
        deadline = time.monotonic() + PATIENCE_S
        while not any(each.startswith(wanted) for each in supervisor.unready):
            assert time.monotonic() < deadline, supervisor.unready
            time.sleep(0.1)
    finally:
        if starting.supervisor is not None:
            starting.supervisor.stop()


def test_what_a_report_says_of_waiting() -> None:
    def waiting(*what: str, reason: str = "") -> str | None:
        return Report(worker="episodes", pid=1, at=2, waits_for=what, reason=reason).waiting

    assert waiting() is None
    assert waiting("postgres", "broker") == "waits for postgres, broker"
    assert waiting("postgres", reason="it has no room") == "waits for postgres: it has no room"
