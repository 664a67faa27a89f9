"""`headstart predict models`: what is read from the state of a model."""

from __future__ import annotations

import pytest

from cli.prediction.models import evicted_executors
from headstart.prediction.shared import covered_sequences
from headstart.prediction.shared.fleet_model import FleetModel


def test_evicted_executors_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(covered_sequences, "MOST_EXECUTORS", 2)
    model = FleetModel()
    for number in range(5):
        model.covered.cover(f"executor-{number}", 1)
    assert evicted_executors(model.to_bytes()) == 3
    assert evicted_executors(b"") == 0
    assert evicted_executors(b"damaged") is None
