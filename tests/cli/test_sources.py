"""What `--source` and `--outcomes` take: the same figures, however a file is packed or written."""

from __future__ import annotations

import csv
import gzip
import io
import json
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from typing import Any

import cramjam
import pytest
import typer

from cli.support.source_options import HistoryOptions, open_source
from replay.execution.runner import Backtest, run_backtest
from replay.results.summary import report
from replay.sources.base import PredictionSource, ReadOptions
from settings import read_settings

AT = 1_760_000_000_000
Entry = dict[str, Any]


def outcomes() -> list[Entry]:
    draw = Random(1)
    return [
        {"context": {"workflow_type": "refund", "user_id": f"00{n % 3}"}, "confidence": n % 7 / 8,
         "correct": draw.random() < 0.6, "gain": 400, "cost": 600, "at": AT + n * 1000,
         "workflow_id": f"w{n // 3}"} for n in range(120)
    ]  # fmt: skip


def runs() -> list[Entry]:
    draw = Random(2)
    return [
        {"source": "x", "domain": "d", "agent_model": "m", "task_id": f"{n}", "trial": 0,
         "started_at": AT + n * 10_000, "steps": [
             {"tool": draw.choice("ab"), "called_at": AT + n * 10_000 + s * 1000,
              "returned_at": AT + n * 10_000 + s * 1000 + 500, "error": False} for s in range(5)]}
        for n in range(30)
    ]  # fmt: skip


def events() -> list[Entry]:
    return [
        {"id": f"{n:032x}", "event_type": "task_complete", "tenant": "t", "workflow_type": "refund",
         "workflow_id": f"w{n}", "timestamp": AT + n * 1000, "confidence": n % 7 / 8,
         "data": {"prediction": {"was_correct": n % 3 > 0}}} for n in range(60)
    ]  # fmt: skip


KINDS: dict[str, Callable[[], list[Entry]]] = {
    "outcomes": outcomes, "runs": runs, "events": events,
}  # fmt: skip


def jsonl(entries: list[Entry]) -> bytes:
    return b"".join(json.dumps(each).encode() + b"\n" for each in entries)


def iso(at: int) -> str:
    return datetime.fromtimestamp(at / 1000, UTC).replace(tzinfo=None).isoformat()


def in_iso(entries: list[Entry]) -> bytes:
    made = json.loads(json.dumps(entries))
    for entry in made:
        for part in (entry, *entry.get("steps", ())):
            for name in ("at", "timestamp", "started_at", "called_at", "returned_at"):
                if name in part:
                    part[name] = iso(part[name])
    return jsonl(made)


def table(entries: list[Entry]) -> bytes:
    rows: list[Entry] = []
    for entry in entries:
        flat = {k: v for k, v in entry.items() if k not in ("context", "steps", "data")}
        flat |= entry.get("context", {})
        if "data" in entry:
            flat["data.prediction.was_correct"] = entry["data"]["prediction"]["was_correct"]
        rows += [{**flat, **step} for step in entry.get("steps", [{}])]
    out = io.StringIO()
    writer = csv.DictWriter(out, rows[0].keys())
    writer.writeheader()
    writer.writerows(rows)
    return out.getvalue().encode()


FORMS: dict[str, Callable[[list[Entry]], bytes]] = {
    "gzip": lambda entries: gzip.compress(jsonl(entries)),
    "zstd": lambda entries: bytes(cramjam.zstd.compress(jsonl(entries))),
    "mark": lambda entries: b"\xef\xbb\xbf" + jsonl(entries),
    "ISO times": in_iso,
    "CSV": table,
    "CSV in gzip": lambda entries: gzip.compress(table(entries)),
    "broken first": lambda entries: b"no\n" + jsonl(entries),
}


def figures(history: PredictionSource) -> Entry:
    units = run_backtest(Backtest(history, {"td": "td"}), lambda _: None, processes=1)
    found = report("x", {"td": "td"}, units)
    return {name: value for name, value in found.items() if name not in ("read", "seconds")}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("form", FORMS)
def test_every_form_gives_the_same_figures(kind: str, form: str, tmp_path: Path) -> None:
    if (kind, form) == ("outcomes", "broken first"):
        pytest.skip("outcomes are checked: the first line that is none ends the reading")
    entries, settings = KINDS[kind](), read_settings()
    plain, other = tmp_path / "plain", tmp_path / "other"
    plain.write_bytes(jsonl(entries))
    other.write_bytes(FORMS[form](entries))
    expected, found = (
        figures(open_source(str(file), ReadOptions(), settings)) for file in (plain, other)
    )
    assert expected["outcomes"] > 20
    assert found == expected


def test_invalid_levels_are_wrong_usage() -> None:
    settings = read_settings()
    assert HistoryOptions(levels="domain, user_id").read_options(settings).levels == (
        "domain",
        "user_id",
    )
    assert HistoryOptions(levels="").read_options(settings).levels == ()
    with pytest.raises(typer.BadParameter, match="there twice"):
        HistoryOptions(levels="domain,domain").read_options(settings)
