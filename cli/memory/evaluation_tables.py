"""Prints the results of an evaluation of the memory: of one, or of several tenants."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from cli.support.output import echo, percent, show_table

_LABELS: Final = {
    "all": "all", "new_tasks": "own task left out", "new_situations": "nor an equal first call",
}  # fmt: skip


def show_results(found: Mapping[str, Any]) -> None:
    """Print a row for each method and column, or two for each tenant and column; then sentences."""
    if "tenants" in found:
        _show_tenants(found["tenants"])
    else:
        _show_methods(found)
    for sentence in found["conclusion"]:
        echo(sentence)
    for sentence in found["assumptions"]:
        echo(f"assumed: {sentence}")


def _show_methods(found: Mapping[str, Any]) -> None:
    columns = ("cases", "method", "exact", "next tool", "edit", "against typical", "interval",
               "set F1", "hit of 4", "success AUC")  # fmt: skip
    show_table(
        columns,
        [
            [label, name, *_cells(figures)]
            for key, label in _LABELS.items()
            for name, figures in found[key].items()
        ],
    )


def _show_tenants(tenants: Mapping[str, Any]) -> None:
    columns = ("tenant", "runs", "cases", "method", "exact", "next tool", "edit", "against typical",
               "interval")  # fmt: skip
    show_table(
        columns,
        [
            [tenant, f"{found['runs']:,}", label, method, *_cells(found[key][method])[:5]]
            for tenant, found in tenants.items()
            for key, label in _LABELS.items()
            for method in ("requests", "memory")
        ],
    )


def _cells(figures: Mapping[str, Any]) -> list[str]:
    ends = figures["delta_edit_interval"]
    return [
        percent(figures["exact"]),
        percent(figures["next"]),
        _number(figures["edit"]),
        _number(figures["delta_edit"], "+.3f"),
        "" if ends is None else f"{ends[0]:+.3f} {ends[1]:+.3f}",
        _number(figures["set_f1"]),
        percent(figures["hit_rate"]),
        _number(figures["success_auc"]),
    ]


def _number(value: float | None, form: str = ".3f") -> str:
    return "" if value is None else format(value, form)
