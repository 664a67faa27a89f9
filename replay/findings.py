"""What `verify` found: how two states of the table differ, row by row, by meaning. Pure."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any, Final

from processing.rows import (
    CONTEXT,
    CONTROL,
    DEFAULT,
    EVIDENCE,
    SPOOL,
    START,
    context_of,
    decode_context,
)
from replay.meaning import same_row
from replay.table import Rows

MOST_NAMED: Final = 100
"""Findings kept in words; all are counted."""


@dataclass
class Findings:
    """Counts by kind, and the first of them in words."""

    counts: Counter[str] = field(default_factory=Counter)
    named: list[dict[str, Any]] = field(default_factory=list)

    def add(self, kind: str, /, **what: Any) -> None:
        """Count one finding."""
        self.counts[kind] += 1
        if len(self.named) < MOST_NAMED:
            self.named.append({"finding": kind, **what})

    @property
    def ok(self) -> bool:
        """Whether nothing was found."""
        return not self.counts


def compare_rows(findings: Findings, partition: int, live: Rows, right: Rows) -> None:
    """Add how `live` differs from `right`, both without deleted rows."""
    for key in right.keys() - live.keys():
        findings.add("row_missing", partition=partition, **_named(key))
    for key in live.keys() - right.keys():
        findings.add("row_extra", partition=partition, **_named(key))
    for key in live.keys() & right.keys():
        if not same_row(key, live[key], right[key]):
            findings.add(
                "row_differing", partition=partition, **_named(key), **_outcomes(key, live, right)
            )


def _named(key: bytes) -> dict[str, str]:
    if key.startswith((CONTEXT, DEFAULT)):
        tenant, path = context_of(key)
        return {"kind": "context", "tenant": tenant, "path": path}
    kinds = {START: "start", SPOOL: "spool", CONTROL: "control", EVIDENCE: "evidence"}
    kind = kinds.get(key[:1], "partition")
    return {"kind": kind, "key": key[1:].decode(errors="replace").replace("\x1f", " / ")}


def _outcomes(key: bytes, live: Rows, right: Rows) -> dict[str, int]:
    if not key.startswith(CONTEXT):
        return {}
    counted, expected = decode_context(live[key]).outcomes, decode_context(right[key]).outcomes
    return {"outcomes": counted, "expected": expected}
