"""`thresholds show` explains what a reader receives, with one request."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import pytest
from redis import Redis

from console.inspection.explain import Explanation, explain, explained, sentences
from console.inspection.target import InspectionTarget
from headstart.keys import DEFAULT_PATH, context_paths, redis_key
from headstart.thresholds.reader import Thresholds

NOW = 1_760_000_600_000
PATHS = context_paths("refund", {"domain": "retail", "user_id": "u7"}.get)
# fmt: off
DEVIATION = {"slope": -0.2, "intercept": 0.1, "slope_variance": 0.01, "covariance": 0.0,
             "intercept_variance": 0.02, "cold": 0.0, "cold_variance": 0.0, "outcomes": 9.0}
# fmt: on


def value(speculate: float, **more: Any) -> dict[str, Any]:
    return {"speculate": speculate, "suggest": 0.5, "epoch": 1, "offset": 7, "outcomes": 9,
            "learner": "hops", "at": NOW - 600_000, "deviation": DEVIATION, "gain": 300.0,
            "cost": 700.0,
            "counts": [1, 0, 0, 0, 8, 6, 0, 0, 0, 2_000_000, 9_000_000], **more}  # fmt: skip


def override(**more: Any) -> dict[str, Any]:
    return {"path": "", "tool": None, "speculate": 0.97, "suggest": None, "until": None,
            "by": "ann", "reason": "slow", **more}  # fmt: skip


GONE = {"epoch": 1, "offset": 9, "deleted": True}
CASES: dict[str, dict[str, Any]] = {
    "nothing": {},
    "the context itself": {path: value(0.6 + 0.1 * n) for n, path in enumerate(PATHS)},
    "a level above": {PATHS[0]: value(0.8)},
    "one that has gone": {PATHS[0]: value(0.8), PATHS[1]: GONE},
    "an override": {PATHS[0]: value(0.8), "!overrides": [override()]},
    "an override of a tool": {PATHS[0]: value(0.8), "!overrides": [override(tool="pay")]},
    "another tool's": {PATHS[0]: value(0.8), "!overrides": [override(tool="other")]},
    "one that has expired": {PATHS[0]: value(0.8), "!overrides": [override(until=NOW - 1)]},
    "an override of nothing learned": {"!overrides": [override(path=PATHS[1])]},
    "overrides of another form": {PATHS[0]: value(0.8), "!overrides": {"all": 0.1}},
    "an override that cannot be read": {
        PATHS[0]: value(0.8),
        "!overrides": [override(path=PATHS[0], speculate=0.1), override(path=7)],
    },
    "an override with a field of a newer version": {
        PATHS[0]: value(0.8), "!overrides": [override(speculate=0.1, pause=True)],
    },
    "a finer one than that": {
        PATHS[0]: value(0.8),
        "!overrides": [override(path=PATHS[0], speculate=0.9), override(speculate="0.1")],
    },
}  # fmt: skip


@pytest.fixture
def redis(target: InspectionTarget) -> Iterator[Any]:
    with Redis.from_url(target.redis) as client:
        yield client
        client.delete(redis_key("t", "refund"))


def ask(target: InspectionTarget) -> Explanation:
    return asyncio.run(explain(target.redis, "t", "refund", PATHS, "pay", NOW))


@pytest.mark.parametrize("case", CASES)
def test_the_explanation_equals_a_readers_threshold(
    target: InspectionTarget, redis: Any, case: str
) -> None:
    for field, stored in CASES[case].items():
        redis.hset(redis_key("t", "refund"), field, json.dumps(stored))
    with Thresholds(target.redis, timeout_s=30.0) as reader:
        context = {"tenant": "t", "workflow_type": "refund", "domain": "retail", "user_id": "u7"}
        answer = reader.get(context, tool="pay")
    found = ask(target)
    assert found.threshold == answer._replace(age_s=0.0)
    assert [level.path for level in found.levels if level.answers] == [
        path for path in PATHS if path == answer.level
    ]
    assert list(sentences(found))


def test_a_tenants_default_answers_without_a_level(target: InspectionTarget, redis: Any) -> None:
    redis.hset(redis_key("t", ""), DEFAULT_PATH, json.dumps(value(0.77)))
    redis.hset(redis_key("t", "refund"), "!overrides", json.dumps([override(speculate=0.8)]))
    try:
        with Thresholds(target.redis, timeout_s=30.0) as reader:
            context = {"tenant": "t", "workflow_type": "refund", "domain": "retail"}
            answer = reader.get(context, tool="pay")
        found = ask(target)
    finally:
        redis.delete(redis_key("t", ""))
    assert (answer.speculate, answer.level, answer.outcomes) == (0.8, DEFAULT_PATH, 9)
    assert found.threshold == answer._replace(age_s=0.0)
    assert found.metrics is None
    assert any("other workflow types" in each for each in sentences(found))


def test_invalid_overrides_start_nothing(target: InspectionTarget, redis: Any) -> None:
    redis.hset(redis_key("t", "refund"), PATHS[0], json.dumps(value(0.8)))
    redis.hset(redis_key("t", "refund"), "!overrides", b"{oops")
    found = ask(target)
    assert found.threshold.speculate > 1.0
    assert any("cannot be read" in each for each in sentences(found))


def test_explain_reads_redis_once(target: InspectionTarget, redis: Any) -> None:
    redis.hset(redis_key("t", "refund"), PATHS[0], json.dumps(value(0.8)))
    redis.config_resetstat()
    ask(target)
    asked = {name: each["calls"] for name, each in redis.info("commandstats").items()}
    assert {name: calls for name, calls in asked.items() if "get" in name} == {"cmdstat_hmget": 1}


def test_sentences_give_the_reasons(target: InspectionTarget, redis: Any) -> None:
    redis.hset(redis_key("t", "refund"), PATHS[0], json.dumps(value(0.8)))
    redis.hset(redis_key("t", "refund"), "!overrides", json.dumps([override()]))
    found = ask(target)
    why = "\n".join(sentences(found))
    assert "an override of ann sets speculate 0.97 (slow)" in why
    assert f"{PATHS[0]} answers (a level above" in why
    assert "9 outcomes, 6 hits and 2 misses of what was started, net +7.0 s" in why
    assert "a guess must be right with probability 0.70" in why
    assert "calibration: right are" in why
    assert found.age_s == 600.0


@pytest.mark.parametrize(
    ("stakes", "unknown"),
    [
        ({"gain": 0.0, "cost": 0.0}, "gain or cost"),
        ({"gain": 0.0}, "gain"),
        ({"cost": 0.0}, "cost"),
    ],
)
def test_the_origin_of_a_gain_that_is_not_logged_is_explained(
    stakes: dict[str, float], unknown: str
) -> None:
    found = explained([value(0.8, **stakes)], None, PATHS[:1], None, NOW)
    (why,) = [each for each in sentences(found) if "is logged at this level" in each]
    assert why.startswith(f"no {unknown} is logged")
    assert "tenant's default" in why
    logged = explained([value(0.8)], None, PATHS[:1], None, NOW)
    assert not any("is logged at this level" in each for each in sentences(logged))
