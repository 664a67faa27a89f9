"""Counters of one context, beside its learner's state; `metrics` derives the reported metrics.

Integers only (confidences in millionths, times in microseconds), so that sums do not depend on the
order in which parts are added.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from operator import add as plus
from typing import Any, Final

from learners.modes import MODES, SPECULATIVE, SUGGESTION, rates
from learners.outcome import Outcome
from topics.schema.json_schema import Counts

OutcomeRow = tuple[float, float, float, float, int, int, Any]
"""An outcome as numbers: confidence; gain, cost and execution in ms; completion time in Unix ms
(see `PartitionClock.outcome_time`); flags; and the `ContextPath` that learns it."""
CORRECT, SPECULATED, SUGGESTED, VERDICT = 1, 2, 4, 8
"""Flags: it was right; it was speculated on; it was for a suggestion; it is a user's verdict, which
contexts learn, and which is counted apart (`count_feedback`)."""

FIELDS: Final = Counts.__struct_fields__
_AT: Final = {name: place for place, name in enumerate(FIELDS)}
_EXPLICIT, _SUGGESTION, _SPECULATIVE = (_AT[mode] for mode in MODES)
_CONFIDENCE, _EXECUTED, _EXECUTION, _WASTED, _SAVED, _FEEDBACK, _ACCEPTED = (
    _AT[name]
    for name in (
        "confidence", "executed", "execution", "wasted", "saved", "feedback", "accepted",
    )
)  # fmt: skip
LARGEST_COUNT: Final = 2**63 - 1


def empty() -> list[int]:
    """Return zero counters, in the order of `Counts`."""
    return [0] * len(FIELDS)


def outcome_row(
    outcome: Outcome, path: Any, *, at: int | None = None, verdict: bool = False
) -> OutcomeRow:
    """Return an outcome as a row for `path`.

    `at`: completion time, Unix ms; None: the outcome's own.
    """
    flags = flags_of(outcome.correct, outcome.speculated, outcome.mode)
    return (
        outcome.confidence, outcome.gain, outcome.cost, outcome.execution_ms,
        outcome.timestamp if at is None else at, flags | VERDICT if verdict else flags, path,
    )  # fmt: skip


def flags_of(correct: bool, speculated: bool, mode: str | None) -> int:
    """Return the flags of an outcome."""
    flags = CORRECT if correct else 0
    if speculated:
        flags |= SPECULATED
    return flags | SUGGESTED if mode == SUGGESTION else flags


def count(outcomes: Iterable[OutcomeRow]) -> list[int]:
    """Return the counters of outcomes. One that was speculated on is speculative in any mode."""
    counts = empty()
    confidences = executed = executions = wasted = saved = 0
    for confidence, gain, cost, execution, _at, flags, _path in outcomes:
        if flags & VERDICT:
            continue
        correct = flags & CORRECT
        if flags & SPECULATED:
            at = _SPECULATIVE
            if correct:
                saved += int(gain * 1000.0)
            else:
                wasted += int(cost * 1000.0)
        else:
            at = _SUGGESTION if flags & SUGGESTED else _EXPLICIT
        counts[at] += 1
        counts[at + 1] += correct
        confidences += int(confidence * 1e6)
        if execution > 0.0:
            executed += 1
            executions += int((execution if execution < 1e12 else 1e12) * 1000.0)
    counts[_CONFIDENCE] = confidences
    counts[_EXECUTED] = executed
    counts[_EXECUTION] = executions
    counts[_WASTED] = wasted
    counts[_SAVED] = saved
    return counts


def count_feedback(counts: list[int], *, accepted: bool) -> None:
    """Count one user's feedback."""
    counts[_FEEDBACK] += 1
    counts[_ACCEPTED] += accepted


def stored(counts: Sequence[int]) -> tuple[int, int, int, tuple[int, ...]]:
    """Return outcomes, speculated, hits, and the counters that do not follow from them."""
    asked, asked_right, shown, shown_right, begun, begun_right = counts[:6]
    return asked + shown + begun, begun, begun_right, (asked_right, shown, shown_right, *counts[6:])


def restored(outcomes: int, speculated: int, hits: int, rest: Sequence[int]) -> list[int]:
    """Return the counters of a row; `rest` is empty in rows of earlier versions."""
    asked_right, shown, shown_right, *sums = rest or (0, 0, 0, *empty()[6:])
    asked = outcomes - speculated - shown
    return [asked, asked_right, shown, shown_right, speculated, hits, *sums]


def seeded(outcomes: int, speculated: int, hits: int, counts: Sequence[int]) -> list[int]:
    """Return the counters of a seeded context.

    `counts`: all of them, or none, as in exports of earlier versions.

    Raises `ValueError` where they contradict each other.
    """
    if not counts:
        return restored(outcomes, speculated, hits, ())
    if len(counts) != len(FIELDS):
        raise ValueError(f"counts: there are {len(FIELDS)} of a context, not {len(counts)}")
    asked, asked_right, shown, shown_right, begun, begun_right = counts[:6]
    if (outcomes, speculated, hits) != (asked + shown + begun, begun, begun_right):
        raise ValueError("counts: do not add up to outcomes, speculated and hits")
    if asked_right > asked or shown_right > shown or begun_right > begun:
        raise ValueError("counts: more were right than there were")
    return list(counts)


def add(counts: list[int], more: Sequence[int]) -> None:
    """Add to the counters of a context, which saturate at 63 bits."""
    counts[:] = map(plus, counts, more)
    if max(counts) > LARGEST_COUNT:
        counts[:] = [min(value, LARGEST_COUNT) for value in counts]


def metrics(counts: Counts) -> dict[str, Any]:
    """Return the metrics of a context, times in ms; None where nothing is known."""
    modes = [
        (counts.explicit, counts.explicit_right),
        (counts.suggestion, counts.suggestion_right),
        (counts.speculative, counts.speculative_right),
    ]
    attempts = sum(mode[0] for mode in modes)
    by_mode = rates(tuple(float(value) for mode in modes for value in mode))
    return {
        "attempts": attempts,
        "hits": counts.speculative_right,
        "misses": counts.speculative - counts.speculative_right,
        "fp_rate": by_mode[SPECULATIVE].fp,
        "fn_rate": _share(
            counts.explicit_right + counts.suggestion_right, counts.explicit + counts.suggestion
        ),
        "modes": {mode: each._asdict() for mode, each in by_mode.items()},
        "mean_execution_ms": _share(counts.execution / 1000.0, counts.executed),
        "mean_confidence": _share(counts.confidence / 1e6, attempts),
        "wasted_ms": counts.wasted / 1000.0,
        "saved_ms": counts.saved / 1000.0,
        "feedback": counts.feedback,
        "feedback_accepted": counts.accepted,
    }


def _share(part: float, whole: int) -> float | None:
    return part / whole if whole else None
