"""`headstart import`: other tools' histories, as runs that a backtest reads."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from cli.options import Json
from cli.output import say, show_json


class Form(StrEnum):
    """Whose files they are."""

    TAU = "tau"
    OTLP = "otlp"
    LANGSMITH = "langsmith"
    LANGFUSE = "langfuse"


def import_(
    form: Annotated[Form, typer.Argument(help="Whose files they are.")],
    files: Annotated[list[Path], typer.Argument(help="The files, JSON or JSONL.")],
    out: Annotated[Path, typer.Option(help="Where to write the runs, JSONL.")],
    json: Json = False,
) -> None:
    """Turn result files and traces of other tools into agent runs, one a line.

    tau: tau-bench and tau2-bench results; otlp: OpenTelemetry execute_tool spans as OTLP JSON;
    langsmith, langfuse: JSONL exports. They hold tool calls and no guesses: a backtest of the runs
    guesses with the demo's predictor. What could not be mapped is counted, and said.

    Examples: headstart import tau gpt-4o-airline.json --out runs.jsonl, then
    headstart backtest --source runs.jsonl; headstart import otlp spans.json --out runs.jsonl --json
    """
    import orjson

    from replay.importers.observed import langfuse_runs, langsmith_runs
    from replay.importers.otlp import otlp_runs
    from replay.importers.runs import Unmapped
    from replay.importers.tau import tau_runs

    read = {
        Form.TAU: tau_runs, Form.OTLP: otlp_runs, Form.LANGSMITH: langsmith_runs,
        Form.LANGFUSE: langfuse_runs,
    }[form]  # fmt: skip
    unmapped, runs, calls = Unmapped(), 0, 0
    unfinished = out.with_name(f"{out.name}.unfinished")
    try:
        with unfinished.open("wb") as lines:
            for file in files:
                for run in read(file, unmapped):
                    lines.write(orjson.dumps(run) + b"\n")
                    runs += 1
                    calls += len(run["steps"])
        unfinished.replace(out)
    finally:
        unfinished.unlink(missing_ok=True)
    for reason, count in unmapped.counts.most_common():
        say(f"not mapped: {count} {reason} (the first: {unmapped.first[reason]})")
    say(f"{runs} runs with {calls} tool calls in {out}")
    if json:
        show_json({"runs": runs, "calls": calls, "unmapped": dict(unmapped.counts)})
