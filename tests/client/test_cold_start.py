"""In a cold start a calibrated guess needs cost / (cost + gain); afterwards what was learned."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headstart import InvalidEvent, speculation_start
from headstart.arguments.checks import InvalidArgument
from headstart.calibration import (
    TARGET,
    Calibration,
    believes_calibrated,
    calibrated_threshold,
    threshold,
)
from headstart.speculation.decision import Guess, SpeculationDecision, check_guess, decide
from headstart.speculation.prediction_log import PredictionLog
from headstart.speculation.speculator import AsyncSpeculator
from headstart.speculation.tool_allowlist import SAFE
from headstart.thresholds.overrides import Override
from headstart.thresholds.threshold import StoredThreshold, Threshold, decode_value, resolve
from tests.client.speculation.threads import speculating
from tests.client.speculation.turns import CONTEXT, Log, speculate

PATHS = ("workflow_type=refund/user_id=u7", "workflow_type=refund")
stakes = st.floats(0.0, 1e300)


def stored(outcomes: int, **fields: Any) -> StoredThreshold | None:
    value = {"speculate": 0.92, "suggest": 0.7, "epoch": 1, "offset": 7, "outcomes": outcomes}
    return decode_value(orjson.dumps({**value, **fields}))


def needed(*chain: StoredThreshold | None, paths: Sequence[str] = PATHS, **fields: float) -> float:
    return resolve(paths, chain).for_guess(**fields, calibrated=True)


@given(stakes, stakes)
def test_it_is_the_threshold_of_an_honest_predictor(gain: float, cost: float) -> None:
    found = calibrated_threshold(gain, cost)
    assert 0.0 <= found <= 1.0
    honest = threshold(Calibration(1.0, 0.0), gain, cost)
    if 0.0 < honest < 1.0:
        assert found == pytest.approx(honest)
    else:  # logits are clipped
        assert found < 0.006 or found > 0.994


def test_gain_and_cost_balance() -> None:
    assert calibrated_threshold(400.0, 600.0) == 0.6
    assert calibrated_threshold(0.0, 0.0) == TARGET
    assert calibrated_threshold(1.7e308, 1.7e308) == 0.5


def test_the_first_200_outcomes_of_a_workflow_type() -> None:
    assert Threshold().for_guess(400.0, 600.0, calibrated=True) == 0.6, "nothing is known"
    assert needed(None, stored(199), gain=400.0, cost=600.0) == 0.6
    assert needed(None, stored(200), gain=400.0, cost=600.0) == 0.92
    assert needed(stored(150), None, gain=400.0, cost=600.0) == 0.6
    assert needed(stored(3), stored(200), gain=400.0, cost=600.0) == 0.92, "of all its users"


def test_other_guesses_need_what_was_learned() -> None:
    for answer in (Threshold(), resolve(PATHS, [None, stored(1)])):
        assert answer.for_guess(400.0, 600.0) == answer.speculate_for(400.0, 600.0) == 0.92
        assert answer.for_guess() == answer.for_guess(400.0) == answer.speculate


def test_the_averages_of_the_context_count_where_the_guess_has_none() -> None:
    known = stored(9, gain=100.0, cost=300.0)
    assert needed(None, known) == 0.75
    assert needed(None, known, gain=300.0) == 0.5
    assert needed(stored(2, gain=900.0), known) == 0.25, "each of the finest that has one"
    assert needed(None, stored(9)) == TARGET
    assert needed(None, stored(9, gain="100", cost=-1)) == TARGET


@pytest.mark.parametrize("learner", ["fixed:speculate=0.95", "never", "always"])
def test_a_constant_holds(learner: str) -> None:
    assert needed(None, stored(9, learner=learner), gain=1.0, cost=1.0) == 0.92
    assert believes_calibrated(0, "hops")


def test_an_override_holds() -> None:
    answer = Threshold().overridden(Override(speculate=0.99))
    assert answer.for_guess(1.0, 1.0, calibrated=True) == 0.99
    answer = Threshold().overridden(Override(suggest=0.3))
    assert answer.for_guess(1.0, 1.0, calibrated=True) == 0.5


def test_a_learned_default_is_of_other_workflow_types() -> None:
    default = resolve(("default",), [stored(5_000, gain=1.0, cost=3.0)])
    assert not default.cold_start
    assert Threshold().with_default(default).for_guess(calibrated=True) == 0.75


def test_without_redis_an_unknown_context_keeps_the_constants() -> None:
    assert Threshold(stale=True).for_guess(1.0, 1.0, calibrated=True) == 0.92
    known = resolve(PATHS, [None, stored(9)])._replace(stale=True)
    assert known.for_guess(1.0, 1.0, calibrated=True) == 0.5


def test_invalid_stakes_are_refused() -> None:
    with pytest.raises(InvalidArgument, match="gain"):
        Threshold().for_guess(-1.0, 1.0, calibrated=True)


def decided(guess: Guess) -> SpeculationDecision:
    return decide(
        check_guess(guess), Threshold(), "act", refusal_reason=SAFE, fits=True, explore=False
    )


def test_a_speculator_starts_it() -> None:
    started = decided(Guess("search", 0.65, 400.0, 600.0, calibrated=True))
    assert (started.action, started.needed) == ("speculate", 0.6)
    declined = decided(Guess("search", 0.65, 400.0, 600.0))
    assert (declined.action, declined.needed) == ("ask", 0.92)


def test_decide_takes_it() -> None:
    stakes: dict[str, Any] = {"gain": 400.0, "cost": 600.0}

    async def test(speculator: AsyncSpeculator, log: Log) -> None:
        believed = await speculator.decide(CONTEXT, "search", 0.65, **stakes, calibrated=True)
        assert (believed.needed, believed.action) == (0.6, "speculate")
        other = await speculator.decide(CONTEXT, "search", 0.65, **stakes)
        assert (other.needed, other.action) == (0.8, "suggest")

    speculate(test)
    with speculating() as (speculator, _):
        believed = speculator.decide(CONTEXT, "search", 0.65, **stakes, calibrated=True)
        assert (believed.needed, believed.action) == (0.6, "speculate")
        assert speculator.decide(CONTEXT, "search", 0.65, **stakes).needed == 0.8
        with pytest.raises(InvalidArgument, match="calibrated"):
            speculator.decide(CONTEXT, "search", 0.65, calibrated="yes")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("guess", "field"),
    [
        (Guess("t", 0.5, calibrated=1), "calibrated"),  # type: ignore[arg-type]
    ],
)
def test_invalid_guesses_are_refused(guess: Guess, field: str) -> None:
    with pytest.raises(InvalidArgument, match=field):
        check_guess(guess)


def test_the_log_records_it() -> None:
    log = Log()
    for guess in (Guess("search", 0.65, calibrated=True), Guess("search", 0.65)):
        PredictionLog(log, CONTEXT, guess).predicted(decided(guess), False)
    declared, silent = (event["data"]["prediction"] for event in log.of("speculation_start"))
    assert declared["calibrated"] is True
    assert "calibrated" not in silent


def test_events_record_it() -> None:
    common: dict[str, Any] = {"workflow_type": "refund", "workflow_id": "w", "task_id": "1"}
    made = speculation_start(
        guess="search", confidence=0.65, speculated=True, calibrated=True,
        evidence={"tries": 12, "source": "repeat"}, **common,
    )  # fmt: skip
    prediction = made["data"]["prediction"]
    assert (prediction["calibrated"], prediction["evidence"]["tries"]) == (True, 12)
    with pytest.raises(InvalidEvent, match="calibrated"):
        speculation_start(
            guess="search", confidence=0.65, speculated=True, calibrated=1,  # type: ignore[arg-type]
            **common,
        )  # fmt: skip
