"""`headstart predict`: predictors of tool calls, and what executors learn together."""

from __future__ import annotations

from cli.prediction.evaluate import evaluate
from cli.prediction.models import models
from cli.prediction.reset import reset
from cli.prediction.verify import verify
from cli.support.option_groups import CommandGroup

app = CommandGroup(
    help="Predictors of tool calls: evaluate them; shared models: list, reset, verify."
)
app.command("evaluate")(evaluate)
app.command("models")(models)
app.command("reset")(reset)
app.command("verify")(verify)
