"""The report of an evaluation of the memory as one file of HTML, of the parts of a backtest's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from memory.evaluation.columns import COLUMN_TITLES
from memory.evaluation.methods import DEFAULT, REFERENCE, REQUESTS
from replay.files.output import Target, write_file
from replay.results.page import document
from replay.results.parts import basis, section, table

Found = Mapping[str, Any]


def write_memory_report(file: Target, found: Found) -> None:
    """Write the report, whole or not at all. Raises `OSError`."""
    write_file(file, memory_page(found))


def memory_page(found: Found) -> str:
    """Return the report, of one memory or of several tenants."""
    if "tenants" not in found:
        return document(f"Memory: {found['source']}", _head(found) + _parts(found) + _basis(found))
    title = f"Does the memory help? {found['runs']:,} runs of {len(found['tenants']):,} tenants"
    sentences = "".join(f'<p class="conclusion">{escape(each)}</p>' for each in found["conclusion"])
    body = f'<section class="verdict"><h1>{title}</h1>{sentences}</section>'
    body += section("Tenants", _overview(found["tenants"]))
    for name, own in found["tenants"].items():
        body += f"<details><summary>{escape(name)}</summary>{_head(own)}{_parts(own)}</details>"
    return document(f"Memory: {found['source']}", body + _basis(found))


def _overview(tenants: Found) -> str:
    """Return two rows for each tenant: what requests, and the memory, gain on each column."""
    rows = [
        [name, method, f"{own['runs']:,}", f"{own['tasks']:,}"]
        + [
            _signed(figures["delta_edit"]) + _between(figures["delta_edit_interval"])
            for column in COLUMN_TITLES
            if (figures := own[column][method])
        ]
        for name, own in tenants.items()
        for method in (REQUESTS, DEFAULT)
    ]
    words = f'<p class="soft">Edit similarity against {REFERENCE}.</p>'
    return words + table(["tenant", "method", "runs", "tasks", *COLUMN_TITLES.values()], rows, 2)


def _parts(found: Found) -> str:
    body = ""
    for key, title in COLUMN_TITLES.items():
        body += section(title, _bars(found[key]) + _methods(found[key], found["methods"]))
    body += section("Evidence for the confidence of a guess", _evidence(found["evidence"]))
    if found.get("poisoning"):
        body += section("Poisoned cases", _poisoning(found["poisoning"]))
    return body


def _head(found: Found) -> str:
    ends = found["all"][REQUESTS]["delta_edit_interval"]
    kind = (
        "unsure" if ends is None or ends[0] <= 0 <= ends[1] else "sure" if ends[0] > 0 else "worse"
    )
    sentences = "".join(f'<p class="conclusion">{escape(each)}</p>' for each in found["conclusion"])
    return (
        f'<section class="verdict {kind}"><h1>Does the memory help? {found["runs"]:,} runs, '
        f"{found['calls']:,} calls, {found['tasks']:,} tasks</h1>"
        + "".join(_headline(name, found["all"][name]) for name in (REQUESTS, DEFAULT))
        + f"{sentences}</section>"
    )


def _headline(name: str, figures: Found) -> str:
    return (
        f'<p class="headline"><strong>{name}</strong>'
        f"<strong>{_signed(figures['delta_edit'])}</strong>"
        f"<span>edit similarity against {REFERENCE}{_between(figures['delta_edit_interval'])}"
        "</span></p>"
    )


def _bars(methods: Found) -> str:
    """Return a bar for the edit similarity of each method, the highest first."""
    rows = []
    for name in sorted(methods, key=lambda each: -(methods[each]["edit"] or 0.0)):
        edit = methods[name]["edit"] or 0.0
        kind = "winner" if name == REQUESTS else "ideal" if name == REFERENCE else ""
        rows.append(
            f'<div class="bar {kind}"><span class="name">{escape(name)}</span>'
            f'<span class="track"><span class="fill" style="left:0%;width:{100 * edit:.2f}%">'
            f'</span></span><span class="earned">{edit:.3f}</span></div>'
        )
    return f'<div class="bars">{"".join(rows)}</div>'


def _methods(methods: Found, labels: Mapping[str, str]) -> str:
    rows = [
        [
            name, labels[name], _percent(each["exact"]), _percent(each["next"]),
            _number(each["edit"]), _signed(each["delta_edit"]) + _between(
                each["delta_edit_interval"]), _number(each["set_f1"]), _percent(each["hit_rate"]),
            _number(each["success_auc"]),
        ]
        for name, each in methods.items()
    ]  # fmt: skip
    heads = ["method", "what it is", "exact sequence", "next tool", "edit similarity",
             f"against {REFERENCE}", "set F1", "hit among 4", "success AUC"]  # fmt: skip
    return table(heads, rows, named=2)


def _evidence(found: Found) -> str:
    rows = [
        [
            title, f"{each['guesses']:,}", _number(each["log_loss"]),
            _number(each["log_loss_with_votes"]),
            _signed(each["log_loss_delta"]) + _between(each["log_loss_interval"]),
            _number(each["utility"], ".1f"), _number(each["utility_with_votes"], ".1f"),
            _number(each["utility_ratio"], ".2f"),
        ]
        for key, title in COLUMN_TITLES.items()
        if (each := found[key])
    ]  # fmt: skip
    heads = ["cases", "guesses", "log loss", "with votes", "difference", "utility at r = .7",
             "with votes", "times"]  # fmt: skip
    words = (
        '<p class="soft">Each call is guessed by the last two tools; past runs that made the same '
        "calls vote. Log loss in nats, utility in thousandths of gain + cost a guess.</p>"
    )
    return words + table(heads, rows)


def _poisoning(found: Found) -> str:
    rows = [[name, f"{each['steered']:,}", f"{each['of']:,}"] for name, each in found.items()]
    words = (
        '<p class="soft">Before each of these questions one foreign writer adds 50 cases with its '
        "query and first call, and another sequence. Steered: the answer became that one.</p>"
    )
    return words + table(["method", "steered", "of"], rows)


def _basis(found: Found) -> str:
    return basis(
        found, "Each run was asked for first and learned afterwards, in the order of time."
    )


def _percent(value: float | None) -> str:
    return "" if value is None else f"{value:.1%}"


def _number(value: float | None, form: str = ".3f") -> str:
    return "" if value is None else format(value, form)


def _signed(value: float | None) -> str:
    return _number(value, "+.3f")


def _between(ends: Sequence[float] | None) -> str:
    return "" if ends is None else f" ({ends[0]:+.3f} to {ends[1]:+.3f})"
