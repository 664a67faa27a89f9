"""Decisions: only safe tools, only within the limit of waste, never against a mode."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headstart.calibration import Calibration
from headstart.keys import context_paths
from headstart.speculation.cost_budget import WINDOW_S, CostBudget
from headstart.speculation.decision import Guess, SpeculationDecision, check_guess, decide
from headstart.speculation.tool_allowlist import SAFE, ToolAllowlist
from headstart.thresholds import unreadable
from headstart.thresholds.modes import MOST_RESTRICTIVE_FIRST, Mode, most_restrictive
from headstart.thresholds.overrides import (
    UNREACHABLE,
    Override,
    applicable_override,
    decode_overrides,
    read_overrides,
)
from headstart.thresholds.threshold import Threshold, decode_value, read_value

shares = st.floats(0.0, 1.0)
costs = st.none() | st.floats(0.0, 1e6)
guesses = st.builds(Guess, st.just("search"), shares, costs, costs)
thresholds = st.builds(
    Threshold, speculate=shares, suggest=shares,
    calibration=st.none() | st.just(Calibration(1.0, 0.0)),
)  # fmt: skip
modes: st.SearchStrategy[Mode] = st.sampled_from(MOST_RESTRICTIVE_FIRST)


@given(guesses, thresholds, modes, st.sampled_from([SAFE, "unsafe"]), st.booleans(), st.booleans())
def test_nothing_runs_that_must_not(
    guess: Guess, threshold: Threshold, mode: Mode, refusal_reason: str, fits: bool, explore: bool
) -> None:
    choice = decide(
        guess, threshold, mode, refusal_reason=refusal_reason, fits=fits, explore=explore
    )
    assert choice.reason
    allowed = mode == "act" and not refusal_reason and fits
    assert (choice.action == "speculate") == (
        allowed and (guess.confidence >= choice.needed or explore)
    )
    assert choice.explored == (choice.action == "speculate" and guess.confidence < choice.needed)
    if mode != "act":
        assert choice.action == "ask"
    elif choice.action == "suggest":
        assert guess.confidence >= threshold.suggest


def decide_in_act(confidence: float, threshold: Threshold, **stakes: float) -> SpeculationDecision:
    guess = Guess("search", confidence, **stakes)
    return decide(guess, threshold, "act", refusal_reason=SAFE, fits=True, explore=False)


def test_gain_and_cost_count_where_the_calibration_is_known() -> None:
    known = Threshold(0.8, 0.4, calibration=Calibration(1.0, 0.0))
    assert decide_in_act(0.7, known).action == "suggest"
    assert decide_in_act(0.7, known, gain=3.0, cost=1.0).action == "speculate"
    assert decide_in_act(0.7, known, gain=3.0).action == "suggest", "one of them has no hint"
    assert decide_in_act(0.9, known, gain=1.0, cost=99.0).action == "suggest"
    manual = known.overridden(Override(speculate=0.95))
    assert decide_in_act(0.7, manual, gain=3.0, cost=1.0).action == "suggest", "set by hand"


@pytest.mark.parametrize(
    ("guess", "field"),
    [
        (Guess("", 0.5), "tool"),
        (Guess("t", 1.1), "confidence"),
        (Guess("t", math.nan), "confidence"),
        (Guess("t", True), "confidence"),
        (Guess("t", 0.5, -1.0), "gain"),
        (Guess("t", 0.5, 1.0, True), "cost"),
        (Guess("t", 0.5, 1.0, math.inf), "cost"),
    ],
)
def test_an_invalid_guess_is_refused(guess: Guess, field: str) -> None:
    with pytest.raises(ValueError, match=field):
        check_guess(guess)


HINTS = [None, True, False]


def declared_as(hints: dict[str, object]) -> list[object]:
    """Return hints in the spellings of MCP and its SDK 2.x, nested as frameworks keep them."""
    present = {name: value for name, value in hints.items() if value is not None}
    snake = {
        {"readOnlyHint": "read_only_hint", "destructiveHint": "destructive_hint"}.get(
            name, "idempotent_hint"
        ): value
        for name, value in hints.items()
    }
    spelt: list[object] = [
        hints,
        present,
        snake,
        SimpleNamespace(**hints),
        SimpleNamespace(**snake),
    ]
    return [
        *spelt,
        *({"annotations": each} for each in spelt),
        *({"metadata": {"mcp": {"tool": {"annotations": each}}}} for each in spelt),
        *(SimpleNamespace(name="t", metadata=each, annotations=None) for each in spelt),
        *(SimpleNamespace(annotations=each, metadata=None) for each in spelt),
        *(SimpleNamespace(mcp_annotations=each, needs_approval=False) for each in spelt),
    ]


@pytest.mark.parametrize("read_only", HINTS)
@pytest.mark.parametrize("destructive", HINTS)
@pytest.mark.parametrize("idempotent", HINTS)
def test_only_read_only_is_safe_unless_a_tool_is_allowed(
    read_only: bool | None, destructive: bool | None, idempotent: bool | None
) -> None:
    hints: dict[str, object] = {
        "readOnlyHint": read_only, "destructiveHint": destructive, "idempotentHint": idempotent
    }  # fmt: skip
    safe = destructive is not True and read_only is True
    for declared in declared_as(hints):
        assert (ToolAllowlist(annotations={"t": declared}).refusal_reason("t") == SAFE) == safe
        by_list = ToolAllowlist(annotations={"t": declared}, allowed=["t"])
        assert (by_list.refusal_reason("t") == SAFE) == (destructive is not True)
        never = ToolAllowlist(annotations={"t": declared}, allowed=["t"], dangerous=["t"])
        assert never.refusal_reason("t") != SAFE


@pytest.mark.parametrize(
    ("declared", "safe", "allowed"),
    [
        ({"readOnlyHint": True, "read_only_hint": False}, False, True),
        ({"readOnlyHint": True, "annotations": {"read_only_hint": False}}, False, True),
        ({"destructiveHint": False, "destructive_hint": True}, False, False),
        ({"read_only_hint": True, "metadata": {"destructive": True}}, False, False),
        ({"readOnlyHint": True, "Destructive-Hint": True}, False, False),
        ({"read_only": True}, True, True),
        ({"metadata": {"side_effect_free": True}}, True, True),
        (SimpleNamespace(needs_approval=lambda call: False), False, False),
        (SimpleNamespace(requires_approval=True, read_only_hint=True), False, False),
        ({}, False, True),
        (object(), False, True),
    ],
)
def test_hints_that_disagree_fail_to_the_safe_side(
    declared: object, safe: bool, allowed: bool
) -> None:
    assert (ToolAllowlist(annotations={"t": declared}).refusal_reason("t") == SAFE) == safe
    by_list = ToolAllowlist(annotations={"t": declared}, allowed=["t"])
    assert (by_list.refusal_reason("t") == SAFE) == allowed


@pytest.mark.parametrize("value", ["true", "false", 1, 0, [], {"a": 1}, math.nan])
def test_a_hint_that_is_not_a_boolean_counts_as_unsafe(
    value: object, caplog: pytest.LogCaptureFixture
) -> None:
    for name in ("readOnlyHint", "read_only_hint"):
        for declared in ({name: value}, SimpleNamespace(**{name: value})):
            assert ToolAllowlist(annotations={"t": declared}).refusal_reason("t") != SAFE
    for name in ("destructiveHint", "destructive_hint"):
        for declared in ({name: value}, SimpleNamespace(**{name: value})):
            found = ToolAllowlist(annotations={"t": declared}, allowed=["t"])
            assert found.refusal_reason("t") != SAFE
    assert caplog.text.count("not a boolean") == 8


def test_an_unreadable_hint_is_not_a_permission() -> None:
    class Broken:
        @property
        def destructive_hint(self) -> bool:
            raise RuntimeError

    assert ToolAllowlist(annotations={"t": Broken()}, allowed=["t"]).refusal_reason("t") != SAFE
    assert ToolAllowlist(annotations={"t": Mock()}, allowed=["t"]).refusal_reason("t") != SAFE


def test_an_undeclared_tool_is_not_safe() -> None:
    assert ToolAllowlist().refusal_reason("t") != SAFE
    assert ToolAllowlist(annotations={"t": None}).refusal_reason("t") != SAFE
    assert ToolAllowlist(allowed={"t"}).refusal_reason("t") == SAFE
    assert ToolAllowlist(allowed=(name for name in ["t"])).refusal_reason("t") == SAFE  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="allowed"):
        ToolAllowlist(allowed="search")


spans = st.lists(st.tuples(st.floats(0, 40), st.integers(0, 50), st.booleans()), max_size=40)


@given(st.integers(0, 100), spans)
def test_no_minute_wastes_more_than_the_limit(
    limit: int, guesses: list[tuple[float, int, bool]]
) -> None:
    breaker, now = CostBudget(limit), 0.0
    wasted: list[tuple[float, int]] = []
    in_flight: list[int] = []
    for pause, cost, ends in guesses:
        now += pause
        if breaker.reserve(cost, now):
            in_flight.append(cost)
        if ends and in_flight:
            breaker.settle(cost_of := in_flight.pop(0), cost_of, now)
            wasted.append((now, cost_of))
        recent = sum(each for at, each in wasted if now - at < WINDOW_S)
        assert breaker.wasted(now) == pytest.approx(recent)
        assert recent <= limit
    assert breaker.wasted(now + WINDOW_S + 1.0) == 0.0


def test_the_most_restrictive_mode() -> None:
    assert most_restrictive([]) == "act"
    assert most_restrictive(["act", "observe"]) == "observe"
    assert most_restrictive(["observe", "off", "act"]) == "off"
    for unknown in ("nonsense", "OFF", "Observe", " act", "act\n", "ACT", "", "shadow"):
        assert most_restrictive([unknown, "act"]) == "off"


@pytest.mark.parametrize("mode", ["OFF", "shadow", "", None, 1, b"act", ["act"]])
def test_an_unknown_mode_starts_nothing(mode: Any) -> None:
    guess, threshold = Guess("search", 1.0), Threshold(0.1, 0.1)
    choice = decide(guess, threshold, mode, refusal_reason=SAFE, fits=True, explore=True)
    assert (choice.action, choice.mode) == ("ask", "off")


PATHS = ("workflow_type=w/domain=d/user_id=u", "workflow_type=w/domain=d", "workflow_type=w")
OF_A_USER = "workflow_type=w/user_id=u"
overrides = st.builds(
    dict,
    path=st.sampled_from(["", *PATHS, OF_A_USER, "workflow_type=w/domain=other"]),
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
        if each["path"] in ("", *PATHS, OF_A_USER)
        and each["tool"] in (None, tool)
        and (each["until"] is None or each["until"] == 150)
    ]
    found = applicable_override(read_overrides(stored), PATHS, tool, now_ms=100.0)

    def rank(path: object, for_tool: object) -> tuple[int, bool]:
        parts = len(str(path).split("/")) if path else 0
        return (parts, for_tool is not None)

    if not matching:
        assert found is None
        return
    assert found is not None
    assert rank(found.path, found.tool)[0] == max(rank(each["path"], None)[0] for each in matching)
    of_path = [rank(each["path"], each["tool"]) for each in matching if each["path"] == found.path]
    assert rank(found.path, found.tool) == max(of_path)


@given(st.permutations(["workflow_type=w/domain=d", OF_A_USER]), st.floats(0, 1), st.floats(0, 1))
def test_the_safer_of_two_equally_specific_overrides_applies(
    order: list[str], one: float, other: float
) -> None:
    stored = [
        {"path": path, "speculate": speculate}
        for path, speculate in zip(order, (one, other), strict=True)
    ]
    found = applicable_override(read_overrides(stored), PATHS, None, now_ms=0.0)
    assert found is not None
    assert found.speculate == max(one, other)


def test_a_level_that_an_override_leaves_out_has_any_value() -> None:
    stop = read_overrides([{"path": OF_A_USER, "speculate": 1.0}])
    for domain in ("retail", "air", None):
        paths = context_paths("w", {"domain": domain, "user_id": "u"}.get)[::-1]
        assert applicable_override(stop, paths, "pay", now_ms=0.0) == stop[0]
        others = context_paths("w", {"domain": domain, "user_id": "u2"}.get)
        assert applicable_override(stop, others, "pay", now_ms=0.0) is None
    assert applicable_override(stop, PATHS[1:], "pay", now_ms=0.0) is None, "of no user"


def test_a_stop_is_not_undone_by_one_for_a_tool_elsewhere() -> None:
    stored = [
        {"path": "workflow_type=w/domain=d", "tool": "pay", "speculate": 0.5},
        {"path": OF_A_USER, "speculate": 1.0},
    ]
    found = applicable_override(read_overrides(stored), PATHS, "pay", now_ms=0.0)
    assert found is not None
    assert found.path == OF_A_USER


@pytest.mark.parametrize(("learned", "applies"), [(0.9, "suggest"), (0.3, "speculate")])
def test_a_threshold_that_is_left_counts_as_learned(learned: float, applies: str) -> None:
    stored = [
        {"path": "workflow_type=w/domain=d", "suggest": 0.9, "reason": "suggest"},
        {"path": OF_A_USER, "speculate": 0.5, "reason": "speculate"},
    ]
    found = applicable_override(read_overrides(stored), PATHS, None, 0.0, learned)
    assert found is not None
    assert found.reason == applies


UNREADABLE = [
    b"", b"null", b"{", b"{}", b"[1]", b'["x"]', b"5", b'"off"', b"\xff", b'[{"speculate": NaN}]',
    b'[{"speculate": 2}]', b'[{"speculate": -0.1}]', b'[{"speculate": "0.1"}]',
    b'[{"speculate": true}]', b'[{"speculate": [0.1]}]', b'[{"suggest": 7, "speculate": 0.1}]',
    b'[{"until": "x", "speculate": 0.1}]', b'[{"path": 3, "speculate": 0.1}]',
    b'[{"tool": 3, "speculate": 0.1}]', b'[{"speculate": 0.1, "pause": true}]',
    b'[{"speculate": 0.1, "format": 2}]', b'[{"speculate": 0.1}, {"speculate": 2, "path": 5}]',
]  # fmt: skip


@pytest.mark.parametrize("raw", UNREADABLE)
def test_nothing_starts_by_an_override_that_cannot_be_read(
    raw: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    unreadable._warned.clear()
    for _ in range(3):
        found = applicable_override(decode_overrides(raw), PATHS, "search", now_ms=100.0)
    assert found is not None
    assert Threshold(0.2, 0.1).overridden(found).speculate > 1.0
    assert caplog.text.count("cannot be used") == len(caplog.records) == 1


def test_the_readable_fields_of_a_broken_override_limit_where_it_applies() -> None:
    _, fine, coarse = PATHS
    stored = [
        {"path": coarse, "tool": "search", "speculate": "0.1"},
        {"path": fine, "tool": None, "speculate": 0.3},
        {"path": "", "speculate": 9, "until": 50},
    ]
    found = read_overrides(stored)
    finest = applicable_override(found, PATHS, "search", now_ms=100.0)
    assert finest is not None
    assert finest.speculate == 0.3, "a finer one holds, as always"
    blocked = applicable_override(found, (coarse,), "search", now_ms=100.0)
    assert blocked is not None
    assert blocked.speculate == UNREACHABLE
    assert applicable_override(found, (coarse,), "other", now_ms=100.0) is None, (
        "of another tool, and ended"
    )
    everywhere = read_overrides([*stored, {"path": 3}])
    assert applicable_override(everywhere, PATHS, "other", now_ms=100.0) == everywhere[0]
    assert everywhere[0].speculate == UNREACHABLE


def test_no_overrides_are_none() -> None:
    assert decode_overrides(None) == decode_overrides(b"[]") == ()
    assert read_overrides(None)[0].speculate == UNREACHABLE, "as in an announcement"


VALUE = {"speculate": 0.6, "suggest": 0.4, "epoch": 1, "offset": 2, "outcomes": 3}


@pytest.mark.parametrize(
    "changed",
    [
        {"speculate": "0.1"}, {"speculate": None}, {"speculate": True}, {"speculate": -0.1},
        {"speculate": 1.1}, {"suggest": "0.1"}, {"suggest": 2}, {"epoch": "1"}, {"epoch": True},
        {"offset": 1.5}, {"outcomes": None}, {"format": 2}, {"format": "1"},
        {"speculate": {"v": 0.1}},
    ],
)  # fmt: skip
def test_a_value_that_cannot_be_read_says_nothing(
    changed: dict[str, object], caplog: pytest.LogCaptureFixture
) -> None:
    unreadable._warned.clear()
    assert read_value(VALUE) is not None
    assert read_value({**VALUE, "unknown": 1}) is not None
    for _ in range(3):
        assert decode_value(orjson.dumps(VALUE | changed)) is None
    assert len(caplog.records) == 1


@pytest.mark.parametrize("raw", [b"", b"{oops", b"[1]", b"5", b"\xff", b'{"speculate":NaN}'])
def test_values_that_are_not_json_objects_are_ignored(raw: bytes) -> None:
    assert decode_value(raw) is None


@pytest.mark.parametrize(
    "calibration",
    [
        Calibration(math.nan, 0.0), Calibration(1e308, 1e308), Calibration(math.inf, -math.inf),
        Calibration(1.0, 0.0, -9.0, 0.0, -9.0), Calibration(1.0, 0.0, 1.0, -1e9, 1.0),
    ],
)  # fmt: skip
def test_a_calibration_that_no_learner_gives_changes_nothing(calibration: Calibration) -> None:
    found = Threshold(0.8, 0.4, calibration=calibration).speculate_for(1.0, 9.0)
    assert 0.0 <= found <= 1.0


def test_the_memory_of_warnings_is_bounded(caplog: pytest.LogCaptureFixture) -> None:
    unreadable._warned.clear()
    for value in range(unreadable.MOST_REMEMBERED + 10):
        unreadable.warn_once("a value", value, "nothing holds")
    assert len(unreadable._warned) <= unreadable.MOST_REMEMBERED


@pytest.mark.parametrize(
    ("confidence", "would"), [(0.95, "speculate"), (0.75, "suggest"), (0.3, "ask")]
)
def test_observing_says_which_of_the_three_it_would_be(confidence: float, would: str) -> None:
    guess, threshold = Guess("search", confidence), Threshold(0.9, 0.7)
    observed = decide(guess, threshold, "observe", refusal_reason=SAFE, fits=True, explore=True)
    assert (observed.action, observed.explored) == ("ask", False)
    assert f"would {would}: " in observed.reason
    acted = decide(guess, threshold, "act", refusal_reason=SAFE, fits=True, explore=False)
    assert acted.action == would
