"""A speculator for threads that knows its threshold without Redis."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from headstart.speculation.speculator import Speculator
from headstart.thresholds.reader import Thresholds
from tests.client.speculation.turns import FOREVER, Log, know

WAIT_S = 60.0


@contextmanager
def speculating(**options: Any) -> Iterator[tuple[Speculator, Log]]:
    log = Log()
    with Thresholds("redis://127.0.0.1:1", staleness_s=FOREVER) as reader:
        know(reader)
        with Speculator(reader, log, **{"allowed": {"search"}, **options}) as speculator:
            yield speculator, log
        assert speculator._budget._reserved < 1e-6  # but rounding errors
        assert speculator.stats()["open"] == 0


def until(condition: Callable[[], object]) -> None:
    ends = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < ends
        time.sleep(0.001)
