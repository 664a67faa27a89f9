"""emit() interrupted by Ctrl-C, or reentered by a signal handler: no returned event is lost."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headstart import Emitter, NotDelivered
from headstart.shipping.shipper import MAX_AGE_S
from headstart.shipping.supervisor import ShipperSupervisor
from tests.client.on_disk import SpoolReader, event, numbers, open_backlog, open_spool, read_all

FIELDS = {"event_type": "task_complete", "workflow_type": "w", "workflow_id": "w"}


class Interrupting:
    """The module `os`; raises Ctrl-C after `left` of its calls."""

    def __init__(self) -> None:
        self.left = 0

    def __getattr__(self, name: str) -> Any:
        found = getattr(os, name)
        return self._called(found) if callable(found) else found

    def _called(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def called(*arguments: Any) -> Any:
            result = call(*arguments)
            self.left -= 1
            if self.left == 0:
                raise KeyboardInterrupt
            return result

        return called


@settings(max_examples=200)
@given(st.lists(st.tuples(st.integers(0, 9), st.booleans()), max_size=25))
def test_ctrl_c_after_any_call_loses_nothing_and_takes_no_position_twice(
    steps: list[tuple[int, bool]],
) -> None:
    with TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        calls = Interrupting()
        patch.setattr("headstart.spool.writer.os", calls)
        spool = open_spool(Path(folder), segment_bytes=150)
        backlog = open_backlog(spool)
        returned, read = [], []
        for number, (after, look) in enumerate(steps):
            if look:
                read += read_all(backlog)
            calls.left = after
            try:
                assert spool.append(b"k", event(number))
                returned.append(event(number))
            except KeyboardInterrupt:
                pass
            calls.left = 0
        spool.close()
        read += read_all(backlog)
        for item in read:
            item.chunk.delivered()
        found = numbers(read)
        assert [each for each in found if each in returned] == returned
        assert len(set(found)) == len(found)
        assert (backlog.progress.settled, backlog.progress.lost) == (spool.next, 0)
        backlog.close()


def test_ctrl_c_while_the_spool_is_opened_leaves_an_emitter_that_works(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    emitter = Emitter("127.0.0.1:1", spool=tmp_path, shipper="none")
    with monkeypatch.context() as patch:

        def interrupted(_self: ShipperSupervisor) -> None:
            raise KeyboardInterrupt

        patch.setattr(ShipperSupervisor, "join", interrupted)
        with pytest.raises(KeyboardInterrupt):
            emitter.emit(FIELDS)
    emitter.emit(FIELDS)
    assert emitter.stats()["emitted"] == 1
    assert (tmp_path / emitter.spool_id / "spool.json").exists()
    with pytest.raises(NotDelivered):
        emitter.close(0.0)


SIGNALLED = """
import os, random, signal, sys, time
import headstart
emitter = headstart.Emitter("127.0.0.1:1", spool=sys.argv[1], shipper="none")
fields = dict(event_type="task_complete", workflow_type="w", workflow_id="w")
draw = random.Random(7)
class Cut(BaseException):
    pass
def emits(*_):
    emitted.append(emitter.emit(fields))
def cuts(*_):
    if armed:
        raise Cut
begun = time.perf_counter()
for _ in range(200):
    emitter.emit(fields)
longest = max(0.0001, (time.perf_counter() - begun) / 20)  # of ten: most are not cut
emitted, armed = [emitter.emit(fields)], False
signal.signal(signal.SIGALRM, {"emits": emits, "cuts": cuts}[sys.argv[2]])
for _ in range(4_000):
    try:
        armed = True
        signal.setitimer(signal.ITIMER_REAL, draw.uniform(0.00001, longest))
        emitted.append(emitter.emit(fields))
    except Cut:
        pass
    finally:
        armed = False
        signal.setitimer(signal.ITIMER_REAL, 0)
os.write(1, "\\n".join(emitted).encode())
"""


@pytest.mark.parametrize("handler", ["emits", "cuts"])
def test_a_signal_at_any_time_loses_nothing(tmp_path: Path, handler: str) -> None:
    ran = subprocess.run(
        [sys.executable, "-c", SIGNALLED, str(tmp_path), handler],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        capture_output=True,
        check=True,
        timeout=300,  # a process that waits for itself never ends
    )
    returned = ran.stdout.decode().split()
    (spool,) = {path.parent for path in tmp_path.glob("*/*.log")}
    backlog = SpoolReader(spool, MAX_AGE_S, lambda: 0)
    found = [orjson.loads(item.event) for item in read_all(backlog)]
    backlog.close()
    ids = [each["id"] for each in found]
    assert len(set(ids)) == len(ids)
    assert set(returned) <= set(ids)
    assert len(returned) > 100
    assert [each["origin"][1] for each in found] == list(range(len(found)))
    assert backlog.progress.lost == 0
