"""The reader: the finest known context answers, and Redis can do nothing to the caller."""

from __future__ import annotations

import asyncio
import json
import logging
import socket
import time
from typing import Any
from uuid import uuid4

import pytest
import redis
from hypothesis import given, settings
from hypothesis import strategies as st

from headstart.keys import context_paths, redis_key
from headstart.thresholds.reader import (
    PAUSE_S,
    AsyncThresholds,
    Threshold,
    Thresholds,
    redis_address,
)
from tests.ports import free_port

DEFAULT = Threshold(speculate=0.92, suggest=0.70, level="default", version=None, outcomes=0)
CONTEXT = {"workflow_type": "refund", "domain": "retail", "user_id": "u7"}
PATHS = context_paths("refund", CONTEXT.get)
PATIENT = 5.0  # seconds: a loaded machine must not look like a slow Redis

pytestmark = pytest.mark.integration


def value(speculate: float = 0.8, **fields: Any) -> str:
    record = {"speculate": speculate, "suggest": 0.5, "epoch": 3, "offset": 4, "outcomes": 9}
    return json.dumps({**record, **fields})


def put(url: str, tenant: str, values: dict[str, str]) -> None:
    with redis.Redis.from_url(url) as client:
        client.hset(redis_key(tenant, "refund"), mapping=values)


def ask_both(url: str, context: dict[str, object], **settings: Any) -> Threshold:
    """Return the answer of both readers, which must be one and the same."""

    async def ask() -> Threshold:
        async with AsyncThresholds(url, **settings) as reader:
            return await reader.get(context)

    with Thresholds(url, **settings) as reader:
        answer = reader.get(context)
    assert answer._replace(age_s=0.0) == asyncio.run(ask())._replace(age_s=0.0)
    return answer


def test_the_default_when_nothing_is_known(redis_url: str, tenant: str) -> None:
    answer = ask_both(redis_url, {**CONTEXT, "tenant": tenant}, timeout_s=PATIENT)
    assert answer == DEFAULT
    assert not answer.known
    assert answer.available


def test_the_tenants_default_answers_where_nothing_of_the_workflow_type_is_known(
    redis_url: str, tenant: str
) -> None:
    context = {**CONTEXT, "tenant": tenant}
    learned = {
        "slope": 0.1, "intercept": -0.5, "slope_variance": 0.02, "covariance": 0.0,
        "intercept_variance": 0.05, "cold": -0.2, "cold_variance": 0.1, "outcomes": 0,
    }  # fmt: skip
    with redis.Redis.from_url(redis_url) as client:
        client.hset(redis_key(tenant, ""), "default", value(0.83, deviation=learned))
    answer = ask_both(redis_url, context, timeout_s=PATIENT)
    assert (answer.speculate, answer.level, answer.version) == (0.83, "default", (3, 4))
    assert answer.calibration is not None
    assert answer.calibration.intercept == pytest.approx(-0.7)
    with redis.Redis.from_url(redis_url) as client:
        client.hset(redis_key(tenant, "refund"), "!overrides", json.dumps(
            [{"path": "", "tool": None, "speculate": 0.99, "suggest": None, "until": None,
              "by": "me", "reason": "why"}]
        ))  # fmt: skip
    overridden = ask_both(redis_url, context, timeout_s=PATIENT)
    assert (overridden.speculate, overridden.suggest, overridden.level) == (0.99, 0.5, "default")
    put(redis_url, tenant, {PATHS[0]: value(0.7)})
    assert ask_both(redis_url, context, timeout_s=PATIENT).level == PATHS[0]


def test_the_finest_known_context_answers(redis_url: str) -> None:
    @settings(max_examples=30, deadline=None)
    @given(known=st.sets(st.sampled_from(range(3))), asked=st.sampled_from([1, 2, 3]))
    def law(known: set[int], asked: int) -> None:
        tenant = uuid4().hex
        if known:
            put(redis_url, tenant, {PATHS[n]: value(0.5 + n / 10) for n in known})
        names = ("workflow_type", "domain", "user_id")[:asked]
        context = {name: CONTEXT[name] for name in names} | {"tenant": tenant}
        answer = ask_both(redis_url, context, timeout_s=PATIENT)
        levels = [n for n in known if n < asked]
        if not levels:
            assert answer == DEFAULT
        else:
            finest = max(levels)
            expected = Threshold(0.5 + finest / 10, 0.5, PATHS[finest], (3, 4), 9)
            assert answer == expected
            assert answer.known

    law()


def test_levels_and_tenants_are_kept_apart(redis_url: str, tenant: str) -> None:
    path = "workflow_type=refund/region=eu"
    put(redis_url, tenant, {path: value(0.6)})
    context = {"workflow_type": "refund", "region": "eu", "tenant": tenant}
    assert ask_both(redis_url, context, timeout_s=PATIENT, levels=("region",)).level == path
    assert ask_both(redis_url, context, timeout_s=PATIENT) == DEFAULT
    other = {**context, "tenant": f"{tenant}-2"}
    assert ask_both(redis_url, other, timeout_s=PATIENT, levels=("region",)) == DEFAULT


def test_keywords_and_mapping_are_equivalent(redis_url: str, tenant: str) -> None:
    put(redis_url, tenant, {PATHS[1]: value()})
    with Thresholds(redis_url, timeout_s=PATIENT) as reader:
        answer = reader.get(CONTEXT, tenant=tenant)
        assert answer == reader.get(**CONTEXT, tenant=tenant)._replace(age_s=0.0)
        assert answer.level == PATHS[1]


@pytest.mark.parametrize(
    "corrupt",
    [
        "",
        "no json",
        "[]",
        "{}",
        "null",
        value(7.0),
        value(speculate="high"),  # type: ignore[arg-type]
        value(epoch=None),
        value(suggest=-0.1),
        '{"speculate":NaN,"suggest":0.5,"epoch":1,"offset":1,"outcomes":1}',
        "\udcff".encode("utf-8", "surrogateescape"),
    ],
)
def test_a_corrupt_value_counts_as_unknown(redis_url: str, tenant: str, corrupt: str) -> None:
    context = {**CONTEXT, "tenant": tenant}
    put(redis_url, tenant, {PATHS[2]: corrupt})
    assert ask_both(redis_url, context, timeout_s=PATIENT) == DEFAULT
    put(redis_url, tenant, {PATHS[0]: value(0.6)})
    assert ask_both(redis_url, context, timeout_s=PATIENT).level == PATHS[0]


def test_redis_away_gives_the_default_and_one_warning(caplog: pytest.LogCaptureFixture) -> None:
    url = f"redis://:secret@127.0.0.1:{free_port()}/0"
    now = [100.0]
    with Thresholds(url, clock=lambda: now[0]) as reader:
        for _ in range(3):
            answer = reader.get(CONTEXT)
            assert (answer.speculate, answer.level, answer.available) == (0.92, "default", False)
            now[0] += PAUSE_S
    warnings = [r for r in caplog.records if r.levelno == logging.WARNING]
    assert len(warnings) == 1
    assert "secret" not in caplog.text
    assert ask_both(url, dict(CONTEXT)).speculate == 0.92


def test_a_slow_redis_costs_one_timeout_then_nothing() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"redis://127.0.0.1:{silent.getsockname()[1]}/0"
        now = [100.0]
        with Thresholds(url, timeout_s=0.02, clock=lambda: now[0]) as reader:
            for _ in range(101):
                assert not reader.get(CONTEXT).available
            assert reader.stats()["failed"] == 1
        assert not ask_both(url, dict(CONTEXT), timeout_s=0.02).available


def test_a_reader_asks_again_when_redis_is_back(
    redis_url: str, tenant: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="headstart.thresholds")
    put(redis_url, tenant, {PATHS[0]: value()})
    now = [100.0]
    with Thresholds(redis_url, timeout_s=PATIENT, clock=lambda: now[0]) as reader:
        query = reader._ask({**CONTEXT, "tenant": tenant}, None)
        reader._note_failure(query, redis.ConnectionError("cut"))
        assert not reader.get(CONTEXT, tenant=tenant).available
        now[0] += PAUSE_S
        assert reader.get(CONTEXT, tenant=tenant).level == PATHS[0]
    assert "responds again" in caplog.text


def test_a_cut_connection_is_reopened_transparently(redis_url: str, tenant: str) -> None:
    put(redis_url, tenant, {PATHS[0]: value()})

    def cut() -> None:
        with redis.Redis.from_url(redis_url) as client:
            client.client_kill_filter(_type="normal", skipme=True)

    async def ask() -> None:
        # a bound of 0: each is asked
        async with AsyncThresholds(redis_url, timeout_s=PATIENT, staleness_s=0.0) as reader:
            assert (await reader.get(CONTEXT, tenant=tenant)).known
            await asyncio.to_thread(cut)
            assert (await reader.get(CONTEXT, tenant=tenant)).known

    asyncio.run(ask())
    with Thresholds(redis_url, timeout_s=PATIENT, staleness_s=0.0) as reader:
        assert reader.get(CONTEXT, tenant=tenant).known
        cut()
        assert reader.get(CONTEXT, tenant=tenant).known


@pytest.mark.parametrize("context", [{}, {"domain": "retail"}, {"workflow_type": ""}])
def test_a_context_needs_its_workflow_type(context: dict[str, object]) -> None:
    with (
        Thresholds("redis://127.0.0.1:1") as reader,
        pytest.raises(ValueError, match="workflow_type"),
    ):
        reader.get(context)


def test_addresses_are_fit_to_be_printed() -> None:
    assert redis_address("redis://me:secret@example.org:7000/2") == "example.org:7000/2"
    assert redis_address("redis://") == "localhost:6379"
    assert redis_address("unix:///run/redis.sock?password=secret") == "/run/redis.sock"


@pytest.mark.parametrize("reader", [Thresholds, AsyncThresholds])
@pytest.mark.parametrize(
    "url",
    [
        None,
        "",
        "localhost",
        "localhost:6379",
        "127.0.0.1",
        6379,
        b"redis://localhost",
        "http://localhost:6379",
        "redis://localhost:port",
        "redis://localhost:99999",
        "redis://local host",
        "redis://localhost/zero",
        "unix://",
        ("localhost", 6379),
    ],
)
def test_an_invalid_redis_url_is_named_with_a_valid_one(reader: Any, url: Any) -> None:
    with pytest.raises(ValueError, match=r"^redis_url: .*redis://127.0.0.1:6379/0"):
        reader(url)


def test_a_password_in_what_is_no_redis_url_is_not_shown() -> None:
    with pytest.raises(ValueError, match="redis_url") as caught:
        Thresholds("http://:secret@localhost")
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    "url",
    [
        "redis://",
        "redis://localhost",
        "rediss://user:p%40ss@cache.example:6380/2",
        "redis://[::1]:6379/0?health_check_interval=2",
        "unix:///tmp/redis.sock?db=1",
    ],
)
def test_a_valid_redis_url_is_accepted(url: str) -> None:
    Thresholds(url).close()


@pytest.mark.parametrize("reader", [Thresholds, AsyncThresholds])
@pytest.mark.parametrize(
    ("option", "nearest"),
    [
        ("timeout", "timeout_s"),
        ("stalenes_s", "staleness_s"),
        ("limit", "mirror_limit"),
        ("level", "levels"),
    ],
)
def test_an_option_that_there_is_not_is_named(reader: Any, option: str, nearest: str) -> None:
    with pytest.raises(
        TypeError, match=rf"{reader.__name__}\(\) has no argument '{option}'.*{nearest}"
    ):
        reader("redis://localhost", **{option: 1})


@pytest.mark.parametrize(
    "options",
    [
        {"timeout_s": 0},
        {"timeout_s": None},
        {"timeout_s": "1"},
        {"staleness_s": -1},
        {"staleness_s": float("nan")},
        {"mirror_limit": 0},
        {"levels": "domain"},
        {"levels": [""]},
        {"levels": None},
    ],
    ids=str,
)
def test_an_option_that_means_nothing_is_named(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=f"^{next(iter(options))}(:| must be)"):
        Thresholds("redis://localhost", **options)


@pytest.mark.parametrize(
    ("given", "meant"),
    [("user", "user_id"), ("type", "workflow_type"), ("domian", "domain"), ("tenent", "tenant")],
)
def test_a_keyword_that_is_nearly_a_level_is_named(given: str, meant: str) -> None:
    async def ask() -> None:
        async with AsyncThresholds("redis://127.0.0.1:1") as reader:
            await reader.get(**{"workflow_type": "refund", given: "x"})

    with Thresholds("redis://127.0.0.1:1") as reader:
        with pytest.raises(TypeError, match=rf"Thresholds.get\(\) .*'{given}'.*'{meant}'"):
            reader.get(**{"workflow_type": "refund", given: "x"})
        reader.get(workflow_type="refund", complexity=3, workflow_id="w", agent_id="a")
        with pytest.raises(TypeError, match=rf"unused key '{given}'.*'{meant}'"):
            reader.get({"workflow_type": "refund", given: "x"})
    with pytest.raises(TypeError, match=rf"AsyncThresholds.get\(\) .*'{given}'.*'{meant}'"):
        asyncio.run(ask())


@pytest.mark.parametrize("given", ["tools", "tol", "tool_name", "toolId", "tool_ids"])
def test_a_name_that_is_nearly_the_tools_is_refused(given: str) -> None:
    context: dict[str, Any] = {"workflow_type": "refund", given: "pay"}

    async def ask() -> None:
        async with AsyncThresholds("redis://127.0.0.1:1") as reader:
            await reader.get(context)

    with Thresholds("redis://127.0.0.1:1") as reader:
        for ask_for in (lambda: reader.get(**context), lambda: reader.get(context)):
            with pytest.raises(ValueError, match=rf"{given}.*did you mean 'tool"):
                ask_for()
        reader.get(context, tool="pay")  # then it is content
        reader.get({"workflow_type": "refund", "tool_version": "2", "customer_id": "c"})
    with pytest.raises(ValueError, match=rf"{given}.*did you mean 'tool"):
        asyncio.run(ask())


def test_a_call_has_one_tool() -> None:
    with Thresholds("redis://127.0.0.1:1") as reader:
        for context in ({"tool": "pay"}, {"tool_id": "pay"}):
            with pytest.raises(ValueError, match="name it once"):
                reader.get({"workflow_type": "refund", **context}, tool="search")
        with pytest.raises(ValueError, match="tool must be"):
            reader.get({"workflow_type": "refund", "tool": 5})


def test_a_tool_that_is_a_level_is_no_tool_of_overrides() -> None:
    with Thresholds("redis://127.0.0.1:1", levels=("tool_id",)) as reader:
        reader.get(workflow_type="refund", tool_id="pay", tool="search")
        with pytest.raises(ValueError, match="did you mean 'tool_id'"):
            reader.get({"workflow_type": "refund", "tool": "pay"})


def test_a_context_that_is_known_is_checked_all_the_same() -> None:
    with Thresholds("redis://127.0.0.1:1", staleness_s=60.0) as reader:
        query = reader._cache.build_query({"workflow_type": "refund"}, None)
        reader._cache.store_response(query, [None] * len(query.fields), time.monotonic())  # type: ignore[union-attr, arg-type]
        for wrong in ({"tools": "pay"}, {"user": "u7"}, {"context": {"domain": "retail"}}):
            with pytest.raises(ValueError, match=next(iter(wrong))):
                reader.get({"workflow_type": "refund", **wrong})


@pytest.mark.parametrize("context", ["refund", 7, ["refund"]])
def test_an_invalid_context_is_named(context: Any) -> None:
    with (
        Thresholds("redis://127.0.0.1:1") as reader,
        pytest.raises(ValueError, match=r"^context must be a mapping"),
    ):
        reader.get(context)
