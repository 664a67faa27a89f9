"""The readers on a real Redis that they may lose: what is announced arrives, and nothing waits."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import pytest

from headstart.keys import MODES, PUBLISHED, context_paths, modes_key, redis_key
from headstart.speculation.speculator import Speculator
from headstart.thresholds import unreadable
from headstart.thresholds.reader import AsyncThresholds, Thresholds
from headstart.thresholds.threshold import Threshold
from tests.client.redis_server import Server
from tests.patience import until

pytestmark = pytest.mark.integration

CONTEXT = {"workflow_type": "refund", "domain": "retail", "user_id": "u7"}
PATHS = context_paths("refund", CONTEXT.get)
PATIENT = 5.0
WAIT_S = 300.0  # a starved machine is no failure


async def eventually_async(check: Callable[[], Any]) -> None:
    deadline = time.monotonic() + WAIT_S
    while not check():  # nothing here could set an event
        assert time.monotonic() < deadline, "not within the test's patience"
        await asyncio.sleep(0.01)


def followed(reader: Thresholds, server: Server) -> bool:
    """Whether all that the reader keeps is confirmed by the line, no longer by its own answer."""
    line = reader._cache._heartbeat
    return all(entry.heartbeat is line for entry in reader._cache._entries.values())


def test_announcements_update_the_cache_without_a_query(server: Server) -> None:
    server.learn(PATHS[0], 0.6, 1)
    with Thresholds(server.url, timeout_s=PATIENT, staleness_s=30.0) as reader:
        assert reader.get(CONTEXT).speculate == 0.6
        until(lambda: followed(reader, server))
        server.learn(PATHS[2], 0.7, 2)
        until(lambda: reader.get(CONTEXT).level == PATHS[2])
        server.learn(PATHS[2], 0.1, 1)  # a late writer
        server.learn(PATHS[2], 0.8, 3)
        until(lambda: reader.get(CONTEXT).speculate == 0.8)
        assert reader.get(CONTEXT).version == (1, 3)
        stats = reader.stats()
    assert stats["misses"] == 1
    assert stats["connections"] == 1
    assert stats["announcements"] == 2
    assert stats["hits"] > 2


def test_a_deleted_context_no_longer_answers(server: Server) -> None:
    server.learn(PATHS[0], 0.6, 1)
    server.learn(PATHS[2], 0.7, 2)
    with Thresholds(server.url, timeout_s=PATIENT, staleness_s=30.0) as reader:
        assert reader.get(CONTEXT).level == PATHS[2]
        until(lambda: followed(reader, server))
        server.learn(PATHS[2], 0.0, 3, deleted=True)
        until(lambda: reader.get(CONTEXT).level == PATHS[0])
        server.learn(PATHS[2], 0.8, 4)
        until(lambda: reader.get(CONTEXT).speculate == 0.8)
    server.learn(PATHS[2], 0.0, 5, deleted=True)
    with Thresholds(server.url, timeout_s=PATIENT) as reader:
        assert reader.get(CONTEXT).level == PATHS[0]


def test_asyncio_has_the_same(server: Server) -> None:
    async def read() -> None:
        async with AsyncThresholds(server.url, timeout_s=PATIENT, staleness_s=30.0) as reader:
            assert not (await reader.get(CONTEXT)).known
            await eventually_async(lambda: reader.stats()["connections"])
            await asyncio.to_thread(server.learn, PATHS[1], 0.7, 2)
            await eventually_async(lambda: reader.stats()["changes"])
            assert (await reader.get(CONTEXT)).speculate == 0.7
            assert await reader.mode() == "act"
            await asyncio.to_thread(server.set_mode, MODES, "*", "off")
            await eventually_async(lambda: reader._modes.lookup("default", None) == "off")
            assert await reader.mode() == "off"
        assert reader.stats()["misses"] == 2  # the context, and the default

    asyncio.run(read())


def test_a_lost_line_misses_nothing(server: Server) -> None:
    with Thresholds(server.url, timeout_s=PATIENT, staleness_s=30.0) as reader:
        reader.get(CONTEXT)
        for offset in range(1, 4):
            until(lambda: followed(reader, server))
            server.client.client_kill_filter(_type="pubsub")
            server.learn(PATHS[0], offset / 10, offset)
            until(lambda wanted=offset: reader.get(CONTEXT).version == (1, wanted))  # type: ignore[misc]
        assert reader.stats()["connections"] > 1


def test_redis_away_leaves_the_last_known_marked_stale(server: Server) -> None:
    server.learn(PATHS[0], 0.6, 1)
    with Thresholds(server.url, timeout_s=0.5, staleness_s=0.4) as reader:
        until(lambda: reader.get(CONTEXT).known)
        server.stop()
        until(lambda: reader.get(CONTEXT).stale)
        answer = reader.get(CONTEXT)
        assert (answer.speculate, answer.level, answer.available) == (0.6, PATHS[0], False)
        assert answer.age_s > 0.4
        other = reader.get(CONTEXT, user_id="never asked for")
        assert (other.speculate, other.stale) == (0.6, True), "its workflow type is known"
        assert not reader.get(workflow_type="unknown").known
        assert reader.mode() == "observe", "the kill switch may be set"
        server.start()
        server.learn(PATHS[0], 0.7, 2)
        until(lambda: reader.get(CONTEXT).speculate == 0.7)
        until(lambda: not reader.get(CONTEXT).stale)


def test_a_frozen_redis_is_noticed(server: Server) -> None:
    server.learn(PATHS[0], 0.6, 1)
    with Thresholds(server.url, timeout_s=0.2, staleness_s=0.4) as reader:
        until(lambda: reader.get(CONTEXT).known)
        until(lambda: reader.stats()["connections"])
        server.signal(signal.SIGSTOP)
        until(lambda: reader.get(CONTEXT).stale)
        server.signal(signal.SIGCONT)
        until(lambda: not reader.get(CONTEXT).stale)


def test_overrides_are_served_and_end(server: Server) -> None:
    server.learn(PATHS[0], 0.6, 1)
    soon = time.time() * 1000 + 600_000
    with Thresholds(server.url, timeout_s=PATIENT, staleness_s=30.0) as reader:
        assert reader.get(CONTEXT).override is None
        until(lambda: followed(reader, server))
        server.override(
            {"path": "", "tool": None, "speculate": 0.99, "suggest": None, "until": None,
             "by": "ops", "reason": "sale"},
            {"path": "", "tool": "search", "speculate": 0.1, "suggest": 0.05, "until": soon,
             "by": "ops", "reason": "safe"},
            {"path": PATHS[1], "tool": None, "speculate": 0.0, "suggest": None, "until": 1,
             "by": "ops", "reason": "over"},
        )  # fmt: skip
        until(lambda: reader.get(CONTEXT).override)
        answer = reader.get(CONTEXT)
        assert (answer.speculate, answer.suggest, answer.version) == (0.99, 0.5, (1, 1))
        assert answer.override is not None
        assert answer.override.reason == "sale"
        assert answer.speculate_for(1.0, 9.0) == 0.99
        assert reader.get(CONTEXT, tool="search").speculate == 0.1
        assert reader.get(**CONTEXT, tool_id="search").speculate == 0.1
        for name in ("tool", "tool_id"):
            assert reader.get({**CONTEXT, name: "search"}).speculate == 0.1
            assert reader.get({**CONTEXT, name: "search"}, tool="search").speculate == 0.1
        server.override()
        until(lambda: reader.get(CONTEXT).override is None)
        assert reader.get(CONTEXT).speculate == 0.6
        assert reader.stats()["misses"] == 1


def test_the_most_restrictive_mode_wins(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    with Thresholds(server.url, timeout_s=PATIENT, staleness_s=30.0) as reader:
        assert reader.mode("acme", "a1") == "act"
        until(lambda: reader.stats()["connections"])
        server.set_mode(modes_key("acme"), "agent/a1", "observe")
        until(lambda: reader.mode("acme", "a1") == "observe")
        assert reader.mode("acme", "a2") == "act"
        server.set_mode(modes_key("acme"), "*", "off")
        until(lambda: reader.mode("acme", "a2") == "off")
        assert reader.mode("other") == "act"
        server.set_mode(modes_key("acme"), "*", "act")
        until(lambda: reader.mode("acme", "a2") == "act")
        server.set_mode(MODES, "*", "off")
        until(lambda: reader.mode("other") == "off")
        server.stop()
        assert reader.mode("other") == "off", "the last known"
    monkeypatch.setenv("HEADSTART_MODE", "observe")
    with Thresholds(server.url) as reader:
        assert reader.mode() == "observe"
    for named in ("sometimes", "OFF", "off ", " "):
        monkeypatch.setenv("HEADSTART_MODE", named)
        with pytest.raises(ValueError, match="HEADSTART_MODE"):
            Thresholds(server.url)


UNKNOWN_MODES = ["OFF", "off ", "Observe", "ACT", " act", "act\n", "", "shadow", '"act"', b"\xff"]


def test_a_kill_switch_set_in_redis_by_hand_reaches_a_running_reader(server: Server) -> None:
    with Thresholds(server.url, timeout_s=PATIENT) as thresholds:
        assert thresholds.mode("acme", "a1") == "act"
        for key, field in ((MODES, "*"), (modes_key("acme"), "agent/a1")):
            server.client.hset(key, field, "off")  # nothing announces it
            until(lambda: thresholds.mode("acme", "a1") == "off")
            server.client.hdel(key, field)
            until(lambda: thresholds.mode("acme", "a1") == "act")


EMPTIED = ["flushed", "restarted", "the modes deleted", "being published"]


def lose_modes(server: Server, how: str) -> None:
    if how == "flushed":
        server.client.flushall()
    elif how == "restarted":
        server.stop()
        server.start()
    else:
        server.client.delete(MODES)
    if how == "being published":
        server.client.hset(MODES, PUBLISHED, b"begun 0123")
    server.client.publish(MODES, "{}")


@pytest.mark.parametrize("how", EMPTIED)
def test_the_kill_switch_holds_though_redis_lost_it(server: Server, how: str) -> None:
    server.set_mode(MODES, "*", "off")
    with (
        Thresholds(server.url, timeout_s=PATIENT) as running,
        Thresholds(server.url, timeout_s=PATIENT, staleness_s=0) as asking,
        Thresholds(server.url, timeout_s=PATIENT) as acting,
    ):
        assert running.mode() == asking.mode() == "off"
        until(lambda: running.stats()["connections"])
        lose_modes(server, how)
        until(lambda: not running._modes.published)  # asked again: no mode is there
        assert running.mode() == asking.mode() == "off", "the last known"
        assert acting.mode() == "observe", "asked for the first time"
        choice = Speculator(acting, allowed={"search"}).decide(CONTEXT, "search", 1.0)
        assert (choice.action, choice.mode) == ("ask", "observe")
        server.publish_modes()
        for reader in (running, asking, acting):
            until(lambda reader=reader: reader.mode() == "act")  # type: ignore[misc]


def test_a_reader_in_act_mode_continues_through_the_loss(server: Server) -> None:
    with Thresholds(server.url, timeout_s=PATIENT, staleness_s=0) as reader:
        assert reader.mode("acme", "a1") == "act"
        server.client.flushall()
        assert reader.mode("acme", "a1") == "act", "the last known"
        assert reader.mode("acme", "a2") == "observe", "not known of this one"
        server.set_mode(modes_key("acme"), "agent/a1", "off")
        assert reader.mode("acme", "a1") == "off", "restrictive modes still count"
        server.client.hdel(modes_key("acme"), "agent/a1")
        assert reader.mode("acme", "a1") == "act", "the last one that was published"
        server.set_mode(MODES, "*", "act")
        assert reader.mode("acme", "a2") == "observe", "a part is not all"
        server.publish_modes()
        assert reader.mode("acme", "a2") == "act"


def test_a_redis_without_modes_is_logged_once_with_the_fix(
    server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    def warnings() -> int:
        return caplog.text.count("no worker has published modes to this Redis yet")

    server.client.flushall()
    with Thresholds(server.url, timeout_s=PATIENT, staleness_s=0) as reader:
        for agent in ("a1", "a2", "a1"):
            assert reader.mode("acme", agent) == "observe"
        assert warnings() == 1
        assert "`headstart up` or `headstart worker thresholds`" in caplog.text
        server.publish_modes()
        reader.mode()
        assert warnings() == 1
        server.client.flushall()
        reader.mode()
        assert warnings() == 2

    async def asynchronously() -> None:
        async with AsyncThresholds(server.url, timeout_s=PATIENT) as reader:
            assert await reader.mode() == "observe"

    asyncio.run(asynchronously())


@pytest.mark.parametrize("place", [(MODES, "*"), (modes_key("acme"), "*"), (None, "agent/a1")])
def test_an_unknown_mode_is_off(
    server: Server, place: tuple[str | None, str], caplog: pytest.LogCaptureFixture
) -> None:
    key, field = place[0] or modes_key("acme"), place[1]
    unreadable._warned.clear()
    for mode in UNKNOWN_MODES:
        server.client.hset(key, field, mode)
        with Thresholds(server.url, timeout_s=PATIENT, staleness_s=0) as reader:
            for _ in range(3):
                assert reader.mode("acme", "a1") == "off", mode
        server.client.hset(key, field, "act")
    warnings = [each for each in caplog.messages if "cannot be used" in each]
    assert len(warnings) == len(UNKNOWN_MODES)
    assert all(field in each and "headstart config set mode" in each for each in warnings)


@pytest.mark.parametrize("key", [MODES, modes_key("acme")])
def test_modes_that_are_no_hash_are_off_and_followed(server: Server, key: str) -> None:
    server.learn(PATHS[0], 0.6, 1)
    with Thresholds(server.url, timeout_s=PATIENT, staleness_s=30.0) as reader:
        assert reader.mode("acme") == "act"
        until(lambda: reader.stats()["connections"])
        server.client.set(key, "off")
        server.client.publish(MODES, "{}")
        until(lambda: reader.mode("acme") == "off")
        assert reader.get(CONTEXT).speculate == 0.6, "only the modes cannot be read"
        server.client.delete(key)
        server.set_mode(MODES, "*", "OFF")
        until(lambda: reader._modes._known)
        assert reader.mode("acme") == "off"
        server.set_mode(MODES, "*", "act")
        until(lambda: reader.mode("acme") == "act")
        assert reader.stats()["connections"] == 1, "the line was never lost"

    async def asynchronously() -> None:
        server.client.delete(key)
        server.client.set(key, "off")
        async with AsyncThresholds(server.url, timeout_s=PATIENT) as reader:
            assert await reader.mode("acme") == "off"

    asyncio.run(asynchronously())


def test_an_executor_that_may_not_read_the_modes_starts_nothing(server: Server) -> None:
    server.learn(PATHS[0], 0.6, 1)
    server.client.acl_setuser(
        "executor", enabled=True, nopass=True, categories=["+@all"],
        keys=["headstart:thresholds:*"], channels=["*"],
    )  # fmt: skip
    url = server.url.replace("redis://", "redis://executor:x@")
    with Thresholds(url, timeout_s=PATIENT) as reader:
        assert reader.mode() == "off"
        assert reader.get(CONTEXT).speculate == 0.6


def test_a_threshold_hash_of_another_type_stops_nothing_else(
    server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    unreadable._warned.clear()
    server.learn(PATHS[0], 0.6, 1)
    server.client.set(redis_key("default", "other"), "no hash")
    with Thresholds(server.url, timeout_s=PATIENT, staleness_s=30.0) as reader:
        for _ in range(3):
            answer = reader.get(workflow_type="other")
            assert (answer.speculate, answer.known, answer.stale) == (0.92, False, True)
            assert reader.get(CONTEXT).speculate == 0.6
        assert reader.mode() == "act"
    warnings = [each for each in caplog.messages if "WRONGTYPE" in each]
    assert len(warnings) == 1
    assert redis_key("default", "other") in warnings[0]


def test_an_override_that_cannot_be_read_starts_nothing(server: Server) -> None:
    server.learn(PATHS[0], 0.6, 1)
    with Thresholds(server.url, timeout_s=PATIENT, staleness_s=30.0) as reader:
        speculator = Speculator(reader, allowed={"search"})
        assert speculator.decide(CONTEXT, "search", 1.0).action == "speculate"
        until(lambda: followed(reader, server))
        server.override({"path": "", "speculate": "0.1"})
        until(lambda: reader.get(CONTEXT).override)
        choice = speculator.decide(CONTEXT, "search", 1.0, gain=9.0, cost=0.1)
        assert choice.action == "suggest"
        server.override({"path": "", "tool": "other", "speculate": 0.7, "stop": True})
        until(lambda: reader.get(CONTEXT).override is None)
        assert speculator.decide(CONTEXT, "search", 1.0).action == "speculate"
        assert speculator.decide(CONTEXT, "search", 0.65).action == "speculate"
        assert reader.get(CONTEXT, tool="other").speculate > 1.0


def test_evicted_contexts_are_unsubscribed(server: Server) -> None:
    with Thresholds(server.url, timeout_s=PATIENT, mirror_limit=3) as reader:
        for number in range(5):
            reader.get(workflow_type=f"w{number}")
        wanted = {MODES, *(redis_key("default", name) for name in ("w3", "w4", ""))}

        def channels() -> set[str]:
            return {name.decode() for name in server.client.pubsub_channels()}

        until(lambda: channels() == wanted)
        stats = reader.stats()
        assert (stats["contexts"], stats["evictions"]) == (3, 3), "the tenant's default is kept"


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_after_a_fork_the_child_follows_too(server: Server) -> None:
    server.learn(PATHS[0], 0.6, 1)
    with Thresholds(server.url, timeout_s=PATIENT) as reader:
        assert reader.get(CONTEXT).speculate == 0.6
        child = os.fork()
        if child == 0:
            code = 1
            try:
                reader.get(CONTEXT)
                until(lambda: reader.get(CONTEXT).speculate == 0.8)
                code = 0
            finally:
                os._exit(code)
        server.learn(PATHS[0], 0.8, 2)
        _, status = os.waitpid(child, 0)
        assert os.waitstatus_to_exitcode(status) == 0
        until(lambda: reader.get(CONTEXT).speculate == 0.8)


def test_an_unclosed_reader_ends_with_its_process(server: Server) -> None:
    program = (
        "import headstart; reader = headstart.Thresholds({url!r}, timeout_s=5);"
        "print(reader.get(workflow_type='refund').speculate)"
    )
    ran = subprocess.run(
        [sys.executable, "-W", "error", "-c", program.format(url=server.url)],
        check=False, capture_output=True, text=True, timeout=WAIT_S,
    )  # fmt: skip
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "0.92\n", "")


def test_the_answer_has_its_origin() -> None:
    assert Threshold().level == "default"
    assert not Threshold().known
    assert Threshold().available
