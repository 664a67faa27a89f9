"""A worker's garbage collector: rare, but knots of cycles do not pile up."""

from __future__ import annotations

import asyncio
import gc
import weakref

import pytest

import agents.worker
from agents.worker import _collect, _collect_rarely


class Knot:
    """Refers to itself, as a closed client does."""

    def __init__(self) -> None:
        self.itself = self


@pytest.mark.parametrize("old", [False, True])
def test_knots_are_collected_though_few_objects_are_new(
    monkeypatch: pytest.MonkeyPatch, old: bool
) -> None:
    """`old`: the knot outlived several collections before it was given up."""
    monkeypatch.setattr(agents.worker, "_COLLECT_S", 0.01)
    monkeypatch.setattr(agents.worker, "_COLLECT_ALL_S", 0.05 if old else 300.0)
    usual = gc.get_threshold()
    _collect_rarely()
    try:
        asyncio.run(_a_knot_goes(old))
    finally:
        gc.unfreeze()
        gc.set_threshold(*usual)


async def _a_knot_goes(old: bool) -> None:
    gone = asyncio.Event()
    made = Knot()
    if old:
        gc.collect()
    knot = weakref.ref(made, lambda _knot: gone.set())
    del made
    assert knot() is not None
    collecting = asyncio.create_task(_collect())
    await asyncio.wait_for(gone.wait(), 10.0)
    collecting.cancel()
