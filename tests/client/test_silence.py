"""Idle spools cost next to nothing, and an event after a silence is read at once.

The shipper is the real one on a real directory; its clock and its sender are the test's.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headstart.emitting.disk_buffer import DiskBuffer
from headstart.shipping.sender import Receipt
from headstart.shipping.shipper import (
    ACTIVE_S,
    CHECK_IDLE_S,
    CHECK_S,
    LEAST_PAUSE_S,
    LIST_S,
    Shipper,
    _poll_delay,
)
from headstart.shipping.wakeup import QUIET_MS, WakeupPipe
from headstart.spool.layout import SpoolTarget
from headstart.spool.reader import SpoolReader
from headstart.spool.settings import SpoolSettings
from headstart.spool.writer import SpoolWriter
from tests.client.on_disk import TARGET, event, fill, open_spool


class Time:
    """Seconds that pass when the test advances them."""

    def __init__(self) -> None:
        self.now = 1_000.0

    def monotonic(self) -> float:
        return self.now

    def time(self) -> float:
        return self.now

    def time_ns(self) -> int:
        return int(self.now * 1e9)


class Host:
    """Spools of living processes, and the shipper of their directory."""

    def __init__(self, directory: Path, time: Time) -> None:
        self.directory, self.time = directory, time
        self.spools: list[SpoolWriter] = []
        self.waiting_bytes = 0
        self.sent: list[bytes] = []
        self.failure: Exception | None = None
        self.shipper = Shipper(directory, now_ms=lambda: 1_800_000_000_000)
        self.shipper._sender = lambda _target: self  # type: ignore[method-assign,assignment,return-value]

    def add(self, _key: bytes, event: bytes, receipt: Receipt, _linger_s: float) -> None:
        self.sent.append(event)
        receipt.delivered()

    def raise_if_failed(self) -> None:
        if self.failure is not None:
            raise self.failure

    def open(self, count: int) -> None:
        for _ in range(count):
            self.spools.append(open_spool(self.directory, f"s{len(self.spools)}"))
            fill(self.spools[-1], 1)

    def passes(self, seconds: float) -> None:
        """The shipper's own polls, as often as it makes them without wake-ups."""
        for _ in range(round(seconds / CHECK_S)):
            self.time.now += CHECK_S * 1.001
            self.shipper._poll()

    def look(self) -> list[bytes]:
        """What comes of one look, after what was rung."""
        self.sent.clear()
        self.shipper._on_wakeup()
        self.shipper._poll()
        return self.sent


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Host]:
    time = Time()
    monkeypatch.setattr("headstart.shipping.shipper.time", time)
    made = Host(tmp_path, time)
    yield made
    made.shipper.close()
    for spool in made.spools:
        spool.close()


def test_an_idle_spool_is_polled_ever_more_rarely(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: Counter[str] = Counter()
    for name in ("read", "check_writer", "_next_segment"):
        real = getattr(SpoolReader, name)

        def counted(self: SpoolReader, name: str = name, real: object = real) -> object:
            looks[name] += 1
            return real(self)  # type: ignore[operator]

        monkeypatch.setattr(SpoolReader, name, counted)
    host.open(50)
    assert len(host.look()) == 50
    host.passes(20 * CHECK_IDLE_S)
    looks.clear()
    host.passes(20 * CHECK_IDLE_S)
    assert 0 < max(looks.values()) <= 50 * 20


def test_a_spool_that_wakes_after_a_silence_is_read_at_once(host: Host) -> None:
    host.open(3)
    host.look()
    host.passes(60)
    bell = WakeupPipe(host.directory, "s1")
    spool = host.spools[1]
    fill(spool, 1)
    assert host.look() == []  # no wake-up: its turn comes
    bell.notify()
    assert host.look() == [event(1)]
    for _ in range(5):  # an emitter that continues at once need not wake it again
        host.time.now += QUIET_MS / 1000
        (emitted,) = fill(spool, 1)
        assert host.look() == [emitted]
    bell.close()


def test_a_missed_wake_up_costs_a_turn(host: Host) -> None:
    host.open(2)
    host.look()
    host.passes(60)
    fill(host.spools[0], 1)
    host.sent.clear()
    host.passes(CHECK_IDLE_S + 2 * CHECK_S)
    assert host.sent == [event(1)]


def test_a_process_that_dies_in_silence_is_noticed_in_turn(host: Host) -> None:
    host.open(2)
    host.look()
    host.passes(60)
    host.spools[0].abandon()
    host.passes(CHECK_IDLE_S + 2 * CHECK_S)
    assert host.shipper.spools == 1
    assert not host.spools[0].folder.exists()


def test_a_new_spool_is_found_by_its_ring_and_without(host: Host) -> None:
    host.open(1)
    assert host.look() == [event(0)]
    host.passes(60)
    host.open(1)
    bell = WakeupPipe(host.directory, "s1")
    bell.notify()
    assert host.look() == [event(0)]
    bell.close()
    host.open(1)
    host.sent.clear()
    host.passes(2 * LIST_S)
    assert host.sent == [event(0)]


def test_a_spool_that_waits_for_room_is_read_when_there_is_some(host: Host) -> None:
    host.open(1)
    host.look()
    host.waiting_bytes = 1 << 30
    bell = WakeupPipe(host.directory, "s0")
    fill(host.spools[0], 1)
    bell.notify()
    assert host.look() == []
    host.passes(10 * ACTIVE_S)
    host.waiting_bytes = 0
    assert host.look() == [event(1)]
    bell.close()


def test_no_wake_up_for_events_that_cannot_be_read_yet(host: Host) -> None:
    host.open(1)
    host.look()
    host.waiting_bytes = 1 << 30
    bell = WakeupPipe(host.directory, "s0")
    fill(host.spools[0], 1)

    async def is_woken() -> bool:
        waits = asyncio.ensure_future(host.shipper._pause(host.shipper._poll(), 0.0))
        await asyncio.sleep(0.001)
        asked = bool(bell._flag[0])
        waits.cancel()
        await asyncio.gather(waits, return_exceptions=True)
        return asked

    assert not asyncio.run(is_woken())
    host.waiting_bytes = 0
    assert host.look() == [event(1)]
    assert asyncio.run(is_woken())
    bell.close()


def test_a_sender_that_failed_ends_the_shipper_though_nothing_new_comes(host: Host) -> None:
    host.open(1)
    host.shipper._senders[TARGET.kafka, TARGET.topic, None] = host  # type: ignore[assignment]
    host.passes(1)
    host.failure = PermissionError("a directory that may not be written any more")
    with pytest.raises(PermissionError):
        host.passes(1)


@pytest.fixture
def outbox(tmp_path: Path) -> Iterator[DiskBuffer]:
    made = DiskBuffer(TARGET, SpoolSettings(tmp_path), "none")
    yield made
    made.close(0.0)


def test_an_emitter_rings_the_first_time_after_a_silence(
    outbox: DiskBuffer, tmp_path: Path
) -> None:
    now = 1_800_000_000_000
    outbox.put(b"k", b"{}", now)
    bell = WakeupPipe(tmp_path)
    bell.read_names()
    for _ in range(100):
        now += QUIET_MS - 1
        outbox.put(b"k", b"{}", now)
    assert bell.read_names() == set()
    for step in (QUIET_MS, 60 * QUIET_MS, -3_600_000):  # and where a clock was set back
        now += step
        outbox.put(b"k", b"{}", now)
        assert bell.read_names() == {outbox.id}
    bell.arm()
    outbox.put(b"k", b"{}", now)
    assert bell.read_names() == {outbox.id}
    bell.close()


def test_an_emitter_rings_where_the_bell_hangs_now(outbox: DiskBuffer, tmp_path: Path) -> None:
    now = 1_800_000_000_000
    outbox.put(b"k", b"{}", now)
    for name in ("bell", "ship.lock"):
        (tmp_path / name).unlink()
    bell = WakeupPipe(tmp_path)
    for minutes in range(1, 4):
        outbox.put(b"k", b"{}", now + minutes * 60_000)
        assert bell.read_names() == {outbox.id}
    bell.arm()
    outbox.put(b"k", b"{}", now + 180_001)
    assert bell.read_names() == {outbox.id}
    bell.close()


def test_a_closing_emitter_wakes_the_shipper(tmp_path: Path) -> None:
    outbox = DiskBuffer(SpoolTarget("127.0.0.1:1", "t", 0.0), SpoolSettings(tmp_path), "none")
    outbox.put(b"k", b"{}", 1_800_000_000_000)
    bell = WakeupPipe(tmp_path)
    bell.read_names()
    outbox.close(0.0)
    assert bell.read_names() == {outbox.id}
    bell.close()


@given(now=st.floats(0, 1e7), pause_s=st.floats(LEAST_PAUSE_S, CHECK_S))
def test_every_shipper_of_a_host_looks_at_the_same_times(now: float, pause_s: float) -> None:
    wait = _poll_delay(now, pause_s, 0.0)
    assert 0 < wait <= pause_s
    looks = (now + wait) / pause_s
    assert abs(looks - round(looks)) * pause_s < 1e-6


@pytest.mark.parametrize(("looked_s", "next_s"), [(0.003, 0.015), (0.009, 0.020)])
def test_looks_that_take_long_are_put_off_by_a_pause_at_the_most(
    looked_s: float, next_s: float
) -> None:
    assert looked_s + _poll_delay(12.3, 0.010, looked_s) == pytest.approx(next_s)


def test_there_is_always_a_pause_between_looks() -> None:
    assert _poll_delay(12.3, 0.010, 1.0) == LEAST_PAUSE_S
