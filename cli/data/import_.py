"""`headstart import`: converts histories of other tools to runs for a backtest."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cli.support.options import Json
from cli.support.output import claim_outputs, echo, show_json

if TYPE_CHECKING:
    from replay.importers.agent_runs import Run, Unmapped

    Reader = Callable[[Iterable[Path], Unmapped], Iterator[Run]]


class Form(StrEnum):
    """Format of the files."""

    TAU = "tau"
    OTLP = "otlp"
    LANGSMITH = "langsmith"
    LANGFUSE = "langfuse"
    RUNS = "runs"


def import_(
    form: Annotated[Form, typer.Argument(help="Format of the files.")],
    files: Annotated[
        list[str],
        typer.Argument(help="The files, JSON, JSONL or CSV, or folders of them; -: stdin."),
    ],
    out: Annotated[
        str, typer.Option(metavar="FILE", help="Output file for the runs, JSONL; -: stdout.")
    ],
    spans: Annotated[
        bool, typer.Option("--spans", help="langfuse: treat SPANs without children as calls.")
    ] = False,
    json: Json = False,
) -> None:
    """Convert result files and traces of other tools to agent runs, one per line.

    tau: tau-bench and tau2-bench results; otlp: OpenTelemetry spans of tool calls (GenAI and MCP
    conventions, OpenInference, OpenLLMetry, Vercel AI, Laminar, Langfuse); langsmith, langfuse:
    exports; runs: agent runs, validated. Runs have arguments, results and messages where the spans
    have them; a backtest of runs guesses with the demo's predictor. Records that cannot be mapped
    are counted and reported. Of duplicate ids the complete version is kept. FILE is not changed if
    nothing is found.

    Examples: headstart import tau gpt-4o-airline.json --out runs.jsonl, then
    headstart backtest --source runs.jsonl; headstart import otlp spans.json --out runs.jsonl --json
    """
    from headstart.events.exact_json import dump_exactly
    from replay.files.output import output_file
    from replay.importers.agent_runs import Unmapped
    from replay.importers.sources import sources

    if spans and form is not Form.LANGFUSE:
        raise typer.BadParameter("--spans is about exports of Langfuse")
    claim_outputs(out, inputs=files, json=json)
    unmapped, runs, calls = Unmapped(), 0, 0
    given = sources(files, unmapped)
    with output_file(out, [*files, *given]) as lines:
        for run in _reader(form, spans=spans)(given, unmapped):
            try:
                line = dump_exactly(run)
            except (TypeError, ValueError, RecursionError) as error:
                unmapped.add(f"runs that cannot be written as JSON ({error})")
                continue
            lines.write(line + b"\n")
            runs += 1
            calls += len(run["steps"])
        _report(unmapped)
        if not calls:
            raise LookupError(_nothing(form, files, unmapped))
    echo(f"{runs} runs with {calls} tool calls in {'standard output' if out == '-' else out}")
    if json:
        duplicates = sum(unmapped.duplicates.values())
        found = {"runs": runs, "calls": calls, "duplicates": duplicates, "alike": unmapped.alike}
        show_json({**found, "unmapped": dict(unmapped.counts)})


def _reader(form: Form, *, spans: bool) -> Reader:
    from functools import partial

    from demo.checked import checked_runs
    from replay.importers.langsmith_langfuse import langfuse_runs, langsmith_runs
    from replay.importers.otlp import otlp_runs
    from replay.importers.tau_bench import tau_runs

    readers: dict[Form, Any] = {
        Form.TAU: tau_runs, Form.OTLP: otlp_runs, Form.LANGSMITH: langsmith_runs,
        Form.LANGFUSE: partial(langfuse_runs, spans_are_calls=spans), Form.RUNS: checked_runs,
    }  # fmt: skip
    found: Reader = readers[form]
    return found


def _report(unmapped: Unmapped) -> None:
    for reason, count in unmapped.counts.most_common():
        echo(f"not mapped: {count} {reason} (the first: {unmapped.first[reason]})")
    for kind, count in unmapped.duplicates.items():
        if count:
            echo(f"dropped: {count} duplicates of {kind} (the same id again)")
    for reason, count in unmapped.incomplete.items():
        echo(f"incomplete: {count} {reason}")
    if unmapped.alike:
        echo(
            f"kept: {unmapped.alike} runs with the identity of another run, but another start or "
            "other calls; give each run a run_id of its own"
        )


def _nothing(form: Form, files: Sequence[str], unmapped: Unmapped) -> str:
    from topics.spans.recognition import LOOKED_FOR

    names = ", ".join(files[:3]) + (f" and {len(files) - 3} more" if len(files) > 3 else "")
    details = "; ".join(f"{count} {reason}" for reason, count in unmapped.counts.most_common(5))
    why = f"no tool call was found in {names}, and nothing is written"
    if unmapped.kinds:
        kinds = ", ".join(f"{kind} {count}" for kind, count in unmapped.kinds.most_common(8))
        details += f"; by kind: {kinds}"
        if form is Form.OTLP:
            details += f"; looked for {', '.join(LOOKED_FOR)}"
    if unmapped.counts["observations of type SPAN"]:
        details += (
            "; Langfuse before it had the type TOOL exports calls as SPAN: --spans takes those "
            "with nothing inside for calls"
        )
    return f"{why}; found: {details}" if details else why
