"""Commands whose numbers must be finite: `nan` passes no range, and the message named its bound."""

from __future__ import annotations

from math import isfinite
from typing import Any

import typer
from typer.core import TyperCommand


class FiniteCommand(TyperCommand):
    """A command that refuses `nan` and `inf` as the value of any option or argument."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse as Typer does. Raises `typer.BadParameter`."""
        try:
            rest: list[str] = super().parse_args(ctx, args)
        except typer.BadParameter as error:
            cause: Any = error.__cause__  # of pydantic, which Typer uses
            found = cause.errors() if hasattr(cause, "errors") else []
            if any(_is_not_finite(each.get("input")) for each in found):
                raise typer.BadParameter(_REASON, ctx, error.param) from error
            raise
        each_param: list[Any] = list(self.params)
        for param in each_param:
            value = ctx.params.get(param.name)
            for each in value if isinstance(value, list | tuple) else (value,):
                if isinstance(each, float) and not isfinite(each):
                    raise typer.BadParameter(_REASON, ctx, param)
        return rest


_REASON = "must be a finite number"


def _is_not_finite(value: object) -> bool:
    try:
        return not isfinite(float(value))  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        return False
