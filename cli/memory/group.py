"""`headstart memory`: the episodic memory."""

from __future__ import annotations

from cli.memory.backfill import backfill
from cli.memory.consolidate import consolidate
from cli.memory.context import context
from cli.memory.correct import correct
from cli.memory.delete import delete
from cli.memory.evaluate import evaluate
from cli.memory.export import export
from cli.memory.graph import graph
from cli.memory.import_ import import_
from cli.memory.keys import app as keys
from cli.memory.list_ import list_
from cli.memory.pack import pack
from cli.memory.policy import policy
from cli.memory.profile import app as profile
from cli.memory.prune import prune
from cli.memory.purge import purge
from cli.memory.quarantine import app as quarantine
from cli.memory.query import query
from cli.memory.search import search
from cli.memory.show import show
from cli.memory.stats import stats
from cli.support.option_groups import CommandGroup

app = CommandGroup(
    help="The episodic memory: search, evaluate, statistics, episodes, export and import, events."
)
app.command("search")(search)
app.command("context")(context)
app.command("policy")(policy)
app.command("evaluate")(evaluate)
app.command("stats")(stats)
app.command("show")(show)
app.command("list")(list_)
app.command("correct")(correct)
app.command("delete")(delete)
app.add_typer(profile, name="profile")
app.command("graph")(graph)
app.command("export")(export)
app.command("import")(import_)
app.command("backfill")(backfill)
app.command("purge")(purge)
app.command("pack")(pack)
app.command("consolidate")(consolidate)
app.command("prune")(prune)
app.add_typer(quarantine, name="quarantine")
app.command("query")(query)
app.add_typer(keys, name="keys")
