"""`headstart demo`: runs executors on the whole pipeline and reports the time saved."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cli.support.options import Json, KafkaPart, Part, StackOptions
from cli.support.output import FAILURE, claim_outputs, echo, show_json, show_table
from cli.support.terminal import LiveView, draws
from cli.system.chosen_services import chosen_services, unused_addresses

if TYPE_CHECKING:
    from demo.run import DemoConfig, DemoResult
    from deploy.local import Addresses
    from settings import LoadedSettings, Settings

Traces = Annotated[
    Path | None, typer.Option(help="Agent runs to replay, JSONL or CSV; else synthetic ones.")
]
Html = Annotated[str | None, typer.Option(metavar="FILE", help="Write the report to this file.")]


def demo(
    traces: Traces = None,
    seconds: Annotated[float, typer.Option(min=1, help="Length of the synthetic workload.")] = 30,
    executors: Annotated[int, typer.Option(min=1, max=64, help="Executor processes.")] = 4,
    rate: Annotated[float, typer.Option(min=1, help="Events/s of all executors.")] = 500,
    seed: Annotated[int, typer.Option(help="Seed of workload and latencies.")] = 7,
    cost_ratio: Annotated[
        float, typer.Option(min=0.01, max=0.99, help="cost / (cost + gain) of a speculation.")
    ] = 0.6,
    refuse_broken: Annotated[
        bool, typer.Option(help="End at a broken line of the traces instead of skipping it.")
    ] = False,
    html: Html = None,
    kafka: KafkaPart = "embedded",
    postgres: Part = "embedded",
    redis: Part = "embedded",
    *,
    options: StackOptions,
    json: Json = False,
) -> None:
    """Run executors on the whole pipeline and report the time that learned thresholds saved.

    Uses the system running on the data directory, or starts one and stops it. Exits with 1 and
    the violated invariant if an event was lost or counted twice.

    Examples: headstart demo --seconds 15; headstart demo --traces agent-traces.jsonl --json
    """
    from demo.run import DemoConfig, check_traces, run_demo
    from replay.files.input import local_file

    claim_outputs(html, inputs=[traces], json=json)
    reading = options.load()
    settings = reading.settings
    parts = chosen_services(reading, {"kafka": kafka, "postgres": postgres, "redis": redis})
    config = DemoConfig(
        data=settings.data,
        executors=executors,
        seconds=seconds,
        traces=None if traces is None else local_file(traces),
        refuse_broken=refuse_broken,
        seed=seed,
        events_per_s=rate,
        cost_ratio=cost_ratio,
        levels=settings.levels,
    )
    check_traces(config, echo)
    with (
        _system(reading, parts) as (addresses, epoch, check),
        _live(settings, addresses) as print_line,
    ):
        result = run_demo(config, addresses, epoch, check, print_line)
    _report(result)
    if html is not None:
        _write(html, result, config, settings)
    if json:
        show_json(result.summary | {"broken": result.broken})
    if result.broken:
        raise typer.Exit(FAILURE)


def _report(result: DemoResult) -> None:
    from demo.memory import memory_lines

    _show(result.summary)
    for line in memory_lines(result.summary["memory"]):
        echo(line)
    for sentence in result.broken:
        echo(f"invariant violated: {sentence}")
    if not result.broken:
        echo("invariants hold: every event stored once, every outcome counted once")


@contextmanager
def _system(
    reading: LoadedSettings, parts: Mapping[str, str]
) -> Iterator[tuple[Addresses, int, Callable[[], None]]]:
    """Yield the running system, or one that is stopped after the demo."""
    import asyncio

    from deploy.local import StackConfig, running
    from deploy.system import System
    from settings import environment
    from settings.connections import local_security
    from topics.epoch import read_epoch

    settings = reading.settings
    found = running(settings.data)
    if found is not None and found.addresses is not None:
        echo(f"using the running system: {found}")
        epoch = asyncio.run(read_epoch(found.addresses.kafka))
        yield found.addresses, epoch.number, lambda: None
        return
    if note := unused_addresses(reading, parts):
        echo(note)
    system = System(
        StackConfig(settings.data, parts["kafka"], parts["postgres"], parts["redis"]),
        partitions=settings.partitions,
        environment=environment(settings, addresses=False) | local_security(parts["kafka"]),
        echo=echo,
    )
    with system:
        assert system.epoch is not None
        yield system.addresses, system.epoch.number, system.check


@contextmanager
def _live(settings: Settings, addresses: Addresses) -> Iterator[Callable[[str], None]]:
    """Show the system as `headstart top` does, on a terminal; yield a function to print a line."""
    from console.inspection.snapshot import SystemObserver
    from console.inspection.target import InspectionTarget

    if not draws(sys.stderr):
        yield echo
        return
    target = InspectionTarget(addresses.kafka, addresses.postgres, addresses.redis, settings.data)
    with LiveView(lambda: SystemObserver(target), 2.0, whole=False, stream=sys.stderr) as view:
        yield view.echo


def _write(html: str, result: DemoResult, config: DemoConfig, settings: Settings) -> None:
    from demo.report import write_report
    from replay.files.input import name_of

    shown = {
        "workload": Path(name_of(config.traces)).name
        if config.traces
        else f"synthetic, seed {config.seed}",
        "executors": f"{config.executors}, {config.events_per_s:g} events/s together",
        "learner": settings.learner,
        "levels": ", ".join(("workflow_type", *config.levels)),
        "cost / (cost + gain)": f"{config.cost_ratio:g}",
        "partitions of new topics": settings.partitions,
    }
    write_report(html, result.shown | {"settings": shown})
    echo(f"{html}: open it in a browser")


def _show(summary: dict[str, Any]) -> None:
    def pair(first: str, second: str, unit: str = "") -> str:
        return f"{summary[first]} / {summary[second]}{unit}"

    hit_rate = summary["hit_rate"]
    rate = "" if hit_rate is None else f" ({hit_rate:.1%})"
    latency, read = "event_to_threshold", "read"
    rows = [
        ("events emitted / stored", pair("events_emitted", "events_stored")),
        ("missing / duplicated", pair("events_missing", "events_duplicated")),
        ("tool calls / outcomes", pair("calls", "outcomes")),
        ("contexts / thresholds published", pair("contexts", "thresholds_published")),
        ("event to threshold p50 / p99", pair(f"{latency}_p50_ms", f"{latency}_p99_ms", " ms")),
        ("threshold read p50 / p99", pair(f"{read}_p50_us", f"{read}_p99_us", " us")),
        ("hits / misses", pair("hits", "misses", rate)),
        ("net gain, learned", f"{summary['net_gain_s']:.1f} s"),
        ("net gain, always", f"{summary['net_gain_always_s']:.1f} s"),
        ("net gain, never", f"{summary['net_gain_never_s']:.1f} s"),
        ("net gain, fixed .92", f"{summary['net_gain_fixed_s']:.1f} s"),
        *((f"not startable: {why}", count) for why, count in summary["not_startable"].items()),
        *((f"assumed: {what}", count) for what, count in summary["assumed"].items()),
    ]
    show_table(("what", "value"), rows)
