"""What `headstart predict evaluate` evaluates, from its options, and what the figures rest on."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from replay.evaluation.evaluation import EvaluationPlan
    from replay.evaluation.runs_file import RunsOfFile


def evaluation_plan(
    file: Path,
    found: RunsOfFile,
    predictors: Sequence[str] | None,
    seeds: Sequence[int],
    ratios: Sequence[float] | None,
    read_only: Sequence[str] | None,
    latency: str,
) -> tuple[EvaluationPlan, list[str]]:
    """Return what to evaluate, and the sentences of what it rests on; the options: see `evaluate`.

    Raises `typer.BadParameter`, and `ValueError` for unknown read-only tools.
    """
    from replay.evaluation.evaluation import EvaluationPlan
    from replay.evaluation.known_predictors import BASELINES, OURS
    from replay.evaluation.net_time import COST_RATIOS
    from replay.evaluation.read_only_tools import read_only_tools

    basis, sentence = _latency(latency, found)
    called = {step.tool for run in found.runs for step in run.steps}
    reading = read_only_tools(read_only or [], called)
    plan = EvaluationPlan(
        file,
        tuple(dict.fromkeys(predictors or (OURS, *BASELINES))),
        tuple(seeds),
        basis,
        tuple(dict.fromkeys(ratios or COST_RATIOS)),
        frozenset(filter(reading.holds, called)),
    )
    return plan, [sentence, reading.assumption]


def chosen_predictors(
    predictors: Sequence[str] | None, executors: int | None
) -> Sequence[str] | None:
    """Return the predictors to evaluate: the groups of that many executors, if a number is given.

    Raises `typer.BadParameter` if both are given.
    """
    if executors is None:
        return predictors
    if predictors:
        raise typer.BadParameter(
            "evaluates the headstart predictor only; leave --predictor out",
            param_hint="--executors",
        )
    from replay.evaluation.executor_groups import group_names

    return group_names(executors)


def sharing_assumptions(executors: int | None) -> list[str]:
    """Return the sentences of what figures of several executors rest on."""
    from replay.evaluation.executor_groups import SENTENCE

    return [] if executors is None else [SENTENCE]


def _latency(given: str, found: RunsOfFile) -> tuple[str, str]:
    """Return which latencies are used, and the sentence that states it."""
    from replay.evaluation.latencies import (
        DECLARED,
        RECORDED,
        SENTENCES,
        SIMULATED,
        all_recorded,
        answer_at_once,
    )

    if given not in ("auto", DECLARED, RECORDED):
        raise typer.BadParameter(
            f"{given!r}: give auto, {DECLARED} or {RECORDED}", param_hint="--latency"
        )
    if given == DECLARED:
        return given, SENTENCES[DECLARED]
    if not all_recorded(found.runs):
        if given == RECORDED:
            raise typer.BadParameter(
                "not every call has called_at and returned_at; leave --latency out",
                param_hint="--latency",
            )
        return DECLARED, SENTENCES[DECLARED]
    if given == "auto" and answer_at_once(found.runs):
        return DECLARED, f"{SENTENCES[DECLARED]}; {SIMULATED}"
    return RECORDED, SENTENCES[RECORDED]
