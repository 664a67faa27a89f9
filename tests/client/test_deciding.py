"""Decisions: only safe tools, only within the limit of waste, never against a mode."""

from __future__ import annotations

import math
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headstart.answers import Threshold
from headstart.breaker import WINDOW_S, Breaker
from headstart.calibration import Calibration
from headstart.deciding import Choice, Guess, checked, decided
from headstart.eligibility import SAFE, Eligibility
from headstart.modes import RESTRICTIVE_FIRST, Mode, most_restrictive
from headstart.overrides import Override, applying, decode_overrides, read_overrides

shares = st.floats(0.0, 1.0)
costs = st.none() | st.floats(0.0, 1e6)
guesses = st.builds(Guess, st.just("search"), shares, costs, costs)
thresholds = st.builds(
    Threshold, speculate=shares, suggest=shares,
    calibration=st.none() | st.just(Calibration(1.0, 0.0)),
)  # fmt: skip
modes: st.SearchStrategy[Mode] = st.sampled_from(RESTRICTIVE_FIRST)


@given(guesses, thresholds, modes, st.sampled_from([SAFE, "unsafe"]), st.booleans(), st.booleans())
def test_nothing_runs_that_must_not(
    guess: Guess, threshold: Threshold, mode: Mode, objection: str, fits: bool, explore: bool
) -> None:
    choice = decided(guess, threshold, mode, objection=objection, fits=fits, explore=explore)
    assert choice.reason
    allowed = mode == "act" and not objection and fits
    assert (choice.action == "speculate") == (
        allowed and (guess.confidence >= choice.needed or explore)
    )
    assert choice.explored == (choice.action == "speculate" and guess.confidence < choice.needed)
    if mode != "act":
        assert choice.action == "ask"
    elif choice.action == "suggest":
        assert guess.confidence >= threshold.suggest


def decide(confidence: float, threshold: Threshold, **stakes: float) -> Choice:
    guess = Guess("search", confidence, **stakes)
    return decided(guess, threshold, "act", objection=SAFE, fits=True, explore=False)


def test_gain_and_cost_count_where_the_calibration_is_known() -> None:
    known = Threshold(0.8, 0.4, calibration=Calibration(1.0, 0.0))
    assert decide(0.7, known).action == "suggest"
    assert decide(0.7, known, gain=3.0, cost=1.0).action == "speculate"
    assert decide(0.7, known, gain=3.0).action == "suggest", "one of them says nothing"
    assert decide(0.9, known, gain=1.0, cost=99.0).action == "suggest"
    manual = known.overridden(Override(speculate=0.95))
    assert decide(0.7, manual, gain=3.0, cost=1.0).action == "suggest", "set by hand"


@pytest.mark.parametrize(
    ("guess", "field"),
    [
        (Guess("", 0.5), "tool"),
        (Guess("t", 1.1), "confidence"),
        (Guess("t", math.nan), "confidence"),
        (Guess("t", 0.5, -1.0), "gain"),
        (Guess("t", 0.5, 1.0, math.inf), "cost"),
    ],
)
def test_a_guess_that_is_none_is_refused(guess: Guess, field: str) -> None:
    with pytest.raises(ValueError, match=field):
        checked(guess)


HINTS = [None, True, False]


@pytest.mark.parametrize("read_only", HINTS)
@pytest.mark.parametrize("destructive", HINTS)
@pytest.mark.parametrize("idempotent", HINTS)
def test_annotations_say_what_is_safe(
    read_only: bool | None, destructive: bool | None, idempotent: bool | None
) -> None:
    hints = {
        "readOnlyHint": read_only, "destructiveHint": destructive, "idempotentHint": idempotent
    }  # fmt: skip
    given_as: list[object] = [hints, SimpleNamespace(**hints)]
    given_as.append({name: value for name, value in hints.items() if value is not None})
    safe = destructive is not True and (
        read_only is True or (destructive is False and idempotent is True)
    )
    for declared in given_as:
        assert (Eligibility(annotations={"t": declared}).objection("t") == SAFE) == safe
        by_list = Eligibility(annotations={"t": declared}, allowed=["t"])
        assert (by_list.objection("t") == SAFE) == (destructive is not True)
        never = Eligibility(annotations={"t": declared}, allowed=["t"], dangerous=["t"])
        assert never.objection("t") != SAFE


def test_what_is_not_declared_is_not_safe() -> None:
    assert Eligibility().objection("t") != SAFE
    assert Eligibility(annotations={"t": None}).objection("t") != SAFE
    assert Eligibility(allowed={"t"}).objection("t") == SAFE
    with pytest.raises(ValueError, match="allowed"):
        Eligibility(allowed="search")


spans = st.lists(st.tuples(st.floats(0, 40), st.integers(0, 50), st.booleans()), max_size=40)


@given(st.integers(0, 100), spans)
def test_no_minute_wastes_more_than_the_limit(
    limit: int, guesses: list[tuple[float, int, bool]]
) -> None:
    breaker, now = Breaker(limit), 0.0
    wasted: list[tuple[float, int]] = []
    under_way: list[int] = []
    for pause, cost, ends in guesses:
        now += pause
        if breaker.reserve(cost, now):
            under_way.append(cost)
        if ends and under_way:
            breaker.settle(cost_of := under_way.pop(0), cost_of, now)
            wasted.append((now, cost_of))
        recent = sum(each for at, each in wasted if now - at < WINDOW_S)
        assert breaker.wasted(now) == pytest.approx(recent)
        assert recent <= limit
    assert breaker.wasted(now + WINDOW_S + 1.0) == 0.0


def test_the_most_restrictive_mode() -> None:
    assert most_restrictive([]) == "act"
    assert most_restrictive(["act", "observe"]) == "observe"
    assert most_restrictive(["observe", "off", "act"]) == "off"
    assert most_restrictive(["nonsense", "act"]) == "act"


PATHS = ("workflow_type=w/domain=d", "workflow_type=w")
overrides = st.builds(
    dict,
    path=st.sampled_from(["", *PATHS, "workflow_type=w/domain=other"]),
    tool=st.sampled_from([None, "search", "other"]),
    speculate=st.sampled_from([None, 0.1, 0.2]),
    suggest=st.sampled_from([None, 0.3]),
    until=st.sampled_from([None, 50, 150]),
    by=st.just("ops"),
    reason=st.just("r"),
)


@given(st.lists(overrides, max_size=6), st.sampled_from([None, "search"]))
def test_the_most_specific_override_wins(stored: list[dict[str, object]], tool: str | None) -> None:
    matching = [
        each
        for each in stored
        if each["path"] in ("", *PATHS)
        and each["tool"] in (None, tool)
        and (each["until"] is None or each["until"] == 150)
    ]
    found = applying(read_overrides(stored), PATHS, tool, now_ms=100.0)

    def rank(path: object, for_tool: object) -> tuple[int, bool]:
        return (["", PATHS[1], PATHS[0]].index(str(path)), for_tool is not None)

    if not matching:
        assert found is None
        return
    assert found is not None
    best = max(rank(each["path"], each["tool"]) for each in matching)
    assert rank(found.path, found.tool) == best


@pytest.mark.parametrize(
    "raw",
    [None, b"", b"{", b"{}", b"null", b"[1]", b'[{"speculate": 2}]', b'[{"speculate": "x"}]',
     b'[{"until": "x"}]', b'[{"path": 3, "speculate": 0.5}]', b'[{"tool": 3}]'],
)  # fmt: skip
def test_a_corrupt_override_is_left_out(raw: bytes | None) -> None:
    assert decode_overrides(raw) == ()


@pytest.mark.parametrize(
    ("confidence", "would"), [(0.95, "speculate"), (0.75, "suggest"), (0.3, "ask")]
)
def test_observing_says_which_of_the_three_it_would_be(confidence: float, would: str) -> None:
    guess, threshold = Guess("search", confidence), Threshold(0.9, 0.7)
    observed = decided(guess, threshold, "observe", objection=SAFE, fits=True, explore=True)
    assert (observed.action, observed.explored) == ("ask", False)
    assert f"would {would}: " in observed.reason
    acted = decided(guess, threshold, "act", objection=SAFE, fits=True, explore=False)
    assert acted.action == would
