"""`headstart backtest`: what policies would have earned on recorded outcomes."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from cli.options import Json
from cli.output import say, show_json, show_table


def backtest(
    outcomes: Annotated[Path, typer.Option(help="Judged predictions, JSONL, in their order.")],
    policy: Annotated[
        list[str] | None,
        typer.Option(help="A policy, with parameters if need be; repeat for more [default: all]."),
    ] = None,
    more: Annotated[
        list[str] | None, typer.Argument(metavar="[POLICY]...", help="More policies.")
    ] = None,
    thresholds_out: Annotated[
        Path | None, typer.Option(help="Directory for POLICY.jsonl: a threshold per outcome.")
    ] = None,
    levels: Annotated[
        str, typer.Option(help="Context keys below the workflow type, coarse to fine.")
    ] = "domain,user_id",
    json: Json = False,
) -> None:
    """Say what policies would have earned on recorded outcomes.

    A line of the file: {"context": {"workflow_type": "refund", "domain": "retail", "user_id":
    "u7"}, "confidence": 0.8, "correct": true, "gain": 400, "cost": 600, "at": 1760000000000}; keys
    of the context may be missing. A line of POLICY.jsonl is what was in force before the outcome of
    the same line was seen, for that line's gain and cost: {"threshold": t, "level": path}.

    Examples: headstart backtest --outcomes o.jsonl --policy default --policy fixed:0.8;
    headstart backtest --outcomes o.jsonl --policy ema:alpha=.1,target=.9 --thresholds-out t --json
    """
    from learners.registry import POLICIES
    from learners.registry import policy as find
    from replay.outcomes import read_outcomes
    from replay.score import anchors

    chosen = {name: find(name) for name in [*(policy or []), *(more or [])] or POLICIES}
    judged = list(read_outcomes(outcomes, [key for key in levels.split(",") if key]))
    if not judged:
        raise ValueError(f"{outcomes} holds no outcomes; see headstart backtest --help")
    if thresholds_out:
        thresholds_out.mkdir(parents=True, exist_ok=True)
    there_was = anchors(judged)
    found: dict[str, dict[str, Any]] = {}
    for name, each in chosen.items():
        say(f"{name} over {len(judged)} outcomes")
        out = thresholds_out / f"{name}.jsonl" if thresholds_out else None
        found[name] = _run(each, judged, there_was, out)
    if json:
        totals = {"best_fixed": there_was.best_fixed, "always": there_was.always, "never": 0.0}
        show_json({"outcomes": len(judged), **totals, "policies": found})
        return
    columns = [column for column in next(iter(found.values())) if column != "modes"]
    rows = [[name, *(_cell(row[column]) for column in columns)] for name, row in found.items()]
    show_table(("policy", *columns), rows)


def _run(policy: Any, judged: list[Any], there_was: Any, out: Path | None) -> dict[str, Any]:
    from dataclasses import asdict

    import orjson

    from learners.policy import spec
    from replay.backtest import Replay, answers
    from replay.score import score

    replay = Replay(policy)
    told = list(answers(replay, judged))
    if out is not None:
        with out.open("wb") as lines:
            for each in told:
                line = {"threshold": each.threshold, "level": each.level}
                lines.write(orjson.dumps(line, option=orjson.OPT_APPEND_NEWLINE))
    found = asdict(score(judged, told, there_was))
    modes = {mode: each._asdict() for mode, each in found.pop("modes").items()}
    return {
        "learner": spec(policy),
        **found,
        "microseconds_per_update": round(replay.nanoseconds / 1000 / max(1, replay.updates), 3),
        "modes": modes,
    }


def _cell(value: Any) -> Any:
    return f"{value:.4g}" if isinstance(value, float) else value
