"""Parts that reports of evaluations share: sections, tables, and what the figures rest on."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any


def section(title: str, body: str) -> str:
    """Return a section of HTML under a title."""
    return f"<section><h2>{escape(title)}</h2>{body}</section>"


def table(heads: Sequence[str], rows: Iterable[Sequence[str]], named: int = 1) -> str:
    """Return a table. `named`: the number of columns with names; the others are figures."""

    def cells(kind: str, row: Sequence[str]) -> str:
        names = [' class="name"'] * named + [""] * (len(row) - named)
        return "".join(
            f"<{kind}{name}>{escape(str(each))}</{kind}>"
            for name, each in zip(names, row, strict=True)
        )

    body = "".join(f"<tr>{cells('td', row)}</tr>" for row in rows)
    return (
        f'<div class="scroll figures"><table><thead><tr>{cells("th", heads)}</tr></thead>'
        f"<tbody>{body}</tbody></table></div>"
    )


def basis(found: Mapping[str, Any], order: str) -> str:
    """Return what the figures rest on. `order`: a sentence on what was guessed and learned when."""
    notes = [f"Assumed: {each}." for each in found["assumptions"]]
    if found["refused"]:
        notes.append(f"{found['refused']:,} lines were refused; the first: {found['named'][0]}")
    lines = "".join(f"<li>{escape(each)}</li>" for each in notes)
    return (
        f'<section class="soft"><h2>What the figures rest on</h2><p>{order} '
        f"{escape(str(found['source']))}.</p><ul>{lines}</ul></section>"
    )
