"""The command line of the service, put together. Each command lives in a module of its name.

Exit codes: 0 done, 1 failed (one line on stderr says why and what to do), 2 wrong usage,
130 interrupted.
"""

from __future__ import annotations

import logging

import typer

from cli import config, dead_letters, events, learner, memory, thresholds, topics
from cli.backtest import backtest
from cli.contexts import contexts
from cli.demo import demo
from cli.doctor import doctor
from cli.emit import emit
from cli.experiment import experiment
from cli.export import export
from cli.importing import import_
from cli.migrate import migrate
from cli.output import report_errors
from cli.replay import replay
from cli.ship import ship
from cli.status import status
from cli.top import top
from cli.tune import tune
from cli.up import up
from cli.verify import verify
from cli.worker import worker

app = typer.Typer(
    name="headstart",
    help="Learns how confident a guessed tool call must be before it is worth starting early.",
    epilog="Example: headstart up, then headstart demo --help. HEADSTART_DEBUG=1 shows tracebacks.",
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
app.command("up")(up)
app.command("status")(status)
app.command("top")(top)
app.command("doctor")(doctor)
app.command("demo")(demo)
app.command("worker")(worker)
app.command("backtest")(backtest)
app.command("replay")(replay)
app.command("tune")(tune)
app.command("experiment")(experiment)
app.command("export")(export)
app.command("import")(import_)
app.command("emit")(emit)
app.command("migrate")(migrate)
app.command("verify")(verify)
app.command("ship")(ship)
app.command("contexts")(contexts)
app.add_typer(topics.app, name="topics")
app.add_typer(thresholds.app, name="thresholds")
app.add_typer(config.app, name="config")
app.add_typer(learner.app, name="learner")
app.add_typer(memory.app, name="memory")
app.add_typer(events.app, name="events")
app.add_typer(dead_letters.app, name="dead-letters")


def main() -> None:
    """Run the command line."""
    # A command says itself, in one line, what does not answer.
    logging.getLogger("aiokafka").setLevel(logging.CRITICAL)
    logging.getLogger("headstart.thresholds").setLevel(logging.ERROR)
    report_errors(app)
