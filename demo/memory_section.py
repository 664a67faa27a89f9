"""The report's section on the memory: retrieved cases, and what retrieval was worth."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from typing import Any

from demo.memory import one_line, worth_sentence
from memory.evaluation.methods import DEFAULT, REFERENCE
from replay.results.parts import section, table


def memory_section(found: Mapping[str, Any]) -> str:
    """Return the section. `found`: what `demo.memory.memory_of` returns."""
    body = f'<p class="conclusion">{escape(worth_sentence(found["worth"]))}</p>'
    body += _cases(found) if found["cases"] else "<p>No case was found.</p>"
    for each in found["degraded"]:
        body += f'<p class="soft">{escape(each)}</p>'
    return section("The memory: cases of earlier runs", body + _figures(found["worth"]))


def _cases(found: Mapping[str, Any]) -> str:
    asked = one_line(found["query"], 200) or f"a run of {found['workflow_type']}"
    rows = [
        [
            one_line(each["query"], 120) or each["workflow_id"],
            "" if each["similarity"] is None else f"{each['similarity']:.2f}",
            " > ".join(each["tools"][:12]),
            each["outcome"] or "",
        ]
        for each in found["cases"]
    ]
    words = (
        f'<p>Retrieved from Postgres for the newest run, which asked "{escape(asked)}" and called '
        f"{escape(' > '.join(found['tools'][:12]))}:</p>"
    )
    return words + table(["request", "similarity", "calls", "outcome"], rows)


def _figures(worth: Mapping[str, Any]) -> str:
    rows = [
        [name, *("" if each[what] is None else form.format(each[what]) for what, form in _SHOWN)]
        for name in (REFERENCE, DEFAULT)
        if (each := worth[name])
    ]
    heads = ["method", "exact sequence", "next tool", "edit similarity", f"against {REFERENCE}"]
    words = (
        '<p class="soft">Each run was asked for after its first call, before it was learned. '
        "Typical: the medoid of earlier runs with the same first tool, without retrieval.</p>"
    )
    return words + table(heads, rows)


_SHOWN = (("exact", "{:.1%}"), ("next", "{:.1%}"), ("edit", "{:.3f}"), ("delta_edit", "{:+.3f}"))
