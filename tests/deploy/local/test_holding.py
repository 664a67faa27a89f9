"""One data directory, one stack; what a killed owner leaves behind."""

import errno
import os
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg
import pytest
from redis import Redis

from deploy.local import Addresses, AlreadyRunning, Stack, StackError, running
from tests.processes import wait_gone

MakeStack = Callable[..., Stack]
Own = Callable[..., Any]


def test_a_second_start_names_the_running_stack(make: MakeStack, tmp_path: Path) -> None:
    data = tmp_path / "data"
    assert running(data) is None
    with make() as stack:
        found = running(data)
        assert found is not None
        assert (found.pid, found.addresses) == (os.getpid(), stack.addresses)
        assert found.children == stack.pids
        with pytest.raises(AlreadyRunning) as caught:
            make().start()
        message = str(caught.value)
        for part in (str(os.getpid()), stack.addresses.kafka, stack.addresses.postgres):
            assert part in message
        assert "\n" not in message
        stack.check()
    assert running(data) is None


def test_children_end_with_a_killed_owner_and_the_next_start_works(
    own: Own, make: MakeStack, tmp_path: Path
) -> None:
    owner = own("forking")
    forked = owner.pids.pop("forked")
    with psycopg.connect(owner.addresses.postgres, autocommit=True) as connection:
        connection.execute("CREATE TABLE kept (value text)")
    with Redis.from_url(owner.addresses.redis) as redis:
        redis.set("kept", "yes")
    owner.process.kill()
    owner.process.wait()

    with make() as stack:  # at once: the orphans may still be ending
        try:
            found = running(tmp_path / "data")
            assert found is not None
            assert found.pid == os.getpid()
            wait_gone(owner.pids, 0)
            with psycopg.connect(stack.addresses.postgres) as connection:
                assert connection.execute("SELECT value FROM kept").fetchall() == []
            with Redis.from_url(stack.addresses.redis) as redis:
                assert redis.get("kept") == b"yes"
        finally:
            os.kill(forked, signal.SIGKILL)


def test_children_end_with_a_killed_owner_by_themselves(own: Own, tmp_path: Path) -> None:
    owner = own()
    with psycopg.connect(owner.addresses.postgres):  # a client does not delay the end
        owner.process.kill()
        owner.process.wait()
        wait_gone(owner.pids)
    assert running(tmp_path / "data") is None


def test_the_lifeline_for_platforms_without_prctl(own: Own) -> None:
    owner = own("watcher")
    kept = owner.pids.pop("kept")
    owner.process.kill()
    owner.process.wait()
    wait_gone(owner.pids)
    os.kill(kept, signal.SIGKILL)  # raises if the watcher ended what was released


def test_a_stopped_orphan_is_killed(own: Own, make: MakeStack) -> None:
    owner = own()
    os.kill(owner.pids["redis"], signal.SIGSTOP)  # deaf to the signal it gets from the kernel
    owner.process.kill()
    owner.process.wait()
    with make() as stack:
        stack.check()
        wait_gone(owner.pids, 0)


@pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="only Linux ties children to a thread")
def test_a_thread_cannot_start_it(make: MakeStack, tmp_path: Path) -> None:
    stack = make()
    caught: list[BaseException] = []

    def start() -> None:
        try:
            stack.start()
        except StackError as error:
            caught.append(error)

    thread = threading.Thread(target=start)
    thread.start()
    thread.join()
    assert "main thread" in str(caught[0])
    assert running(tmp_path / "data") is None


@pytest.mark.parametrize(
    ("name", "writing"),
    [("stack.lock", "os.pwrite"), ("stack.json.part", "json.dump")],
)
def test_a_full_disk_is_named_with_the_file_and_the_remedy(
    make: MakeStack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, writing: str
) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    addresses = Addresses("127.0.0.1:1", "postgresql://127.0.0.1:1", "redis://127.0.0.1:1")
    monkeypatch.setattr(Stack, "_start", lambda _self, hold, _group: hold.announce(addresses, {}))
    monkeypatch.setattr(writing, full)
    with pytest.raises(StackError) as caught:
        make().start()
    message = str(caught.value)
    for part in (str(tmp_path / "data" / name), "No space left", "free space", "--data"):
        assert part in message
    assert running(tmp_path / "data") is None, "the lock is free again"
