"""The command line of the service. Each command is in the module of its name.

Exit codes: 0 done, 1 failed (one line on stderr gives the reason and what to do), 2 wrong usage,
130 interrupted.
"""

from __future__ import annotations

from typing import Annotated, Any

import typer

from cli.support.lazy_group import CommandSpec, lazy, load_all
from cli.support.output import report_errors

COMMANDS = {
    "up": CommandSpec(
        "cli.system.up:up",
        "Start broker, Postgres, Redis and the workers, and keep them running until Ctrl-C.",
    ),
    "status": CommandSpec(
        "cli.system.status:status",
        "Show whether services and workers are healthy: a summary, then each of them.",
    ),
    "top": CommandSpec(
        "cli.system.top:top",
        "Show health, throughput, learned thresholds and the time they saved, until Ctrl-C.",
    ),
    "doctor": CommandSpec(
        "cli.system.doctor:doctor",
        "Check services, topics, schema, versions, disk and clock; print how to fix each problem.",
    ),
    "demo": CommandSpec(
        "cli.system.demo:demo",
        "Run executors on the whole pipeline and report the time that learned thresholds saved.",
    ),
    "worker": CommandSpec(
        "cli.system.worker:worker",
        "Run a worker: events to Postgres, outcomes to thresholds, decisions to shared models.",
    ),
    "backtest": CommandSpec(
        "cli.analysis.backtest:backtest",
        "Compute what policies would have earned on recorded predictions.",
    ),
    "replay": CommandSpec(
        "cli.analysis.replay:replay",
        "Relearn thresholds from the log, with the workers' own core, and print them.",
    ),
    "tune": CommandSpec(
        "cli.analysis.tune:tune",
        "Search settings on the first part of the log, and confirm the best on the rest.",
    ),
    "experiment": CommandSpec(
        "cli.analysis.experiment:experiment",
        "Compare what the arms of an experiment earned with the calls executors started.",
    ),
    "predict": CommandSpec(
        "cli.prediction.group:app",
        "Predictors of tool calls: evaluate them; shared models: list, reset, verify.",
    ),
    "export": CommandSpec(
        "cli.data.export:export",
        "Write part of the log to FILE: zstd-compressed JSON lines, one unchanged record each.",
    ),
    "import": CommandSpec(
        "cli.data.import_:import_",
        "Convert result files and traces of other tools to agent runs, one per line.",
    ),
    "emit": CommandSpec(
        "cli.data.emit:emit", "Send events from a JSONL file, or from standard input."
    ),
    "backup": CommandSpec(
        "cli.data.backup:app", "Backups of the whole system: create, verify, restore, purges."
    ),
    "migrate": CommandSpec(
        "cli.system.migrate:migrate",
        "Apply missing schema migrations in one transaction; running it again changes nothing.",
    ),
    "verify": CommandSpec(
        "cli.analysis.verify:verify",
        "Replay the log through the learner and compare with the table, Redis and Postgres.",
    ),
    "rebuild": CommandSpec(
        "cli.analysis.rebuild:rebuild",
        "Relearn thresholds from the log, and switch the workers over to the result.",
    ),
    "ship": CommandSpec(
        "cli.data.ship:ship",
        "Send the events that emitters on this host have spooled, until Ctrl-C or SIGTERM.",
    ),
    "spool": CommandSpec(
        "cli.data.spool:app",
        "The events that emitters have spooled on this host: purge a subject's.",
    ),
    "contexts": CommandSpec(
        "cli.thresholds.contexts:contexts",
        "List contexts with their counts, most recently learned first.",
    ),
    "topics": CommandSpec(
        "cli.system.topics:app", "The topics: list, create, recreate, delete, describe; ACLs."
    ),
    "thresholds": CommandSpec(
        "cli.thresholds.group:app",
        "The thresholds that are served: list, show, history, export, import, reset, republish, "
        "snapshot.",
    ),
    "config": CommandSpec(
        "cli.config.group:app", "Overrides and modes: set, unset, get, list; and settings: show."
    ),
    "notices": CommandSpec(
        "cli.thresholds.notices:app",
        "Thresholds that settled, drifts, anomalies and overrides: list, follow.",
    ),
    "learner": CommandSpec(
        "cli.thresholds.learner:app", "The policy of each context: choose, list."
    ),
    "memory": CommandSpec(
        "cli.memory.group:app",
        "The episodic memory: search, evaluate, statistics, episodes, export and import, events.",
    ),
    "events": CommandSpec("cli.data.events:app", "The events on the log."),
    "dead-letters": CommandSpec(
        "cli.data.dead_letters:app", "Records that workers refused: list, show, replay, drop."
    ),
}

app = typer.Typer(
    name="headstart",
    cls=lazy(COMMANDS),
    help="Learns how confident a guessed tool call must be before it is worth starting early.",
    epilog="Example: headstart up, then headstart demo --help. HEADSTART_DEBUG=1 shows tracebacks.",
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


def _show_version(asked: bool) -> None:
    if asked:
        from importlib.metadata import version

        print(f"headstart {version('headstart-service')}")
        raise typer.Exit


@app.callback()
def _begin(
    _version: Annotated[
        bool,
        typer.Option(
            "--version", help="Show the version and exit.", callback=_show_version, is_eager=True
        ),
    ] = False,
) -> None:
    import logging

    # Commands report an unreachable service themselves, in one line.
    logging.getLogger("aiokafka").setLevel(logging.CRITICAL)
    logging.getLogger("headstart.thresholds").setLevel(logging.ERROR)


def whole() -> Any:
    """Return the group with all commands imported."""
    group: Any = typer.main.get_command(app)
    load_all(group)
    return group


def main() -> None:
    """Run the command line."""
    report_errors(app)
