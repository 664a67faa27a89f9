"""A start that takes too long prints which worker waits for what, and why."""

from __future__ import annotations

from pathlib import Path

import pytest

from deploy import system
from deploy.local import Addresses, StackConfig
from processing.worker_report import Report
from tests.patience import until


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
        for name in ("episodes", "thresholds", "history", "predictions"):
            assert f"worker {name} " in str(caught.value)
        supervisor = starting.supervisor
        assert supervisor is not None
        wanted = f"worker episodes waits for broker: no Kafka broker answers at {closed}"
        until(
            lambda: any(each.startswith(wanted) for each in supervisor.unready),
            seen=lambda: supervisor.unready,
        )
    finally:
        if starting.supervisor is not None:
            starting.supervisor.stop()


def test_the_reason_to_wait_is_in_the_report() -> None:
    def waiting(*what: str, reason: str = "") -> str | None:
        return Report(worker="episodes", pid=1, at=2, waits_for=what, reason=reason).waiting

    assert waiting() is None
    assert waiting("postgres", "broker") == "waits for postgres, broker"
    assert waiting("postgres", reason="it has no room") == "waits for postgres: it has no room"
