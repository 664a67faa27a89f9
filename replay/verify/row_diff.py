"""What `verify` found: how two states of the table differ, row by row, by meaning. Pure."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any, Final

from processing.state.rows import (
    CONTEXT,
    CONTROL,
    DEFAULT,
    EVIDENCE,
    SPOOL,
    START,
    context_of,
    decode_context,
    is_old_start,
    version,
    without_type,
)
from replay.log.live_table import Rows
from replay.verify.meaning import same_row

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
    live = _keyed_alike(live, right)
    for key in right.keys() - live.keys():
        findings.add("row_missing", partition=partition, **_named(key))
    for key in live.keys() - right.keys():
        findings.add("row_extra", partition=partition, **_named(key))
    for key in live.keys() & right.keys():
        if not same_row(key, live[key], right[key]):
            findings.add(
                "row_differing", partition=partition, **_named(key), **_outcomes(key, live, right)
            )


def _keyed_alike(live: Rows, right: Rows) -> Rows:
    """Return live rows with those of starts from earlier versions at the keys that they have now.

    Their keys lack the workflow type, so it is that of the right row of the same version.
    """
    if not any(map(is_old_start, live)):
        return live
    now = {
        (without_type(key), version(row)): key
        for key, row in right.items()
        if key.startswith(START) and not is_old_start(key)
    }
    return {
        now.get((key, version(row)), key) if is_old_start(key) else key: row
        for key, row in live.items()
    }


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
