"""What was not joined, of what a filter leaves: its tenant, workflow type and domain alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson
import pytest

from headstart.events.schema import new_id
from replay.execution.runner import Backtest, named, run_backtest
from replay.predictions.unjoined import Filter, skipped
from replay.results.conclusion import caveats
from replay.results.page import read
from replay.results.summary import report
from replay.sources.base import ReadOptions
from replay.sources.files import EventFile

BEGIN = 1_750_000_000_000
HOUR_MS = 3_600_000
POLICIES = named(["fixed"])


def of(
    place: tuple[str, str, str | None], task: str, kind: str = "task_complete", at: int = 0
) -> dict[str, Any]:
    tenant, workflow_type, domain = place
    data: dict[str, Any] = {"prediction": {"tool_id": "s"}}
    if domain is not None:
        data["context"] = {"domain": domain}
    confidence = {"confidence": 0.9} if kind == "speculation_start" else {}
    return {
        "id": new_id(), "event_type": kind, "tenant": tenant, "workflow_type": workflow_type,
        "workflow_id": "w", "task_id": task, "tool_id": "s", "timestamp": BEGIN + at,
        "data": data, **confidence,
    }  # fmt: skip


def events(place: tuple[str, str, str | None], times: int) -> list[dict[str, Any]]:
    """Return `times` predictions; of completions and of starts that are alone twice and thrice as
    many, of the starts some that are replaced, expire, or are open at the end."""
    found = []
    for n in range(times):
        found += [of(place, f"j{n}", "speculation_start"), of(place, f"j{n}")]
        found += [of(place, f"u{n}{m}") for m in range(2)]
        found += [of(place, "replaced", "speculation_start")]
        found += [of(place, f"expires{n}", "speculation_start")]
        found += [of(place, f"open{n}", "speculation_start", 3 * HOUR_MS)]
    return found


ACME, OTHER = ("acme", "refund", "retail"), ("b", "refund", "retail")
TYPE, DOMAIN, NONE = ("acme", "order", "retail"), ("acme", "refund", "x"), ("acme", "refund", None)
PLACES = {ACME: 1, OTHER: 2, TYPE: 3, DOMAIN: 4, NONE: 5}


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    logs = [events(place, times) for place, times in PLACES.items()]
    lines = [each for log in logs for each in log]
    lines.sort(key=lambda each: int(each["timestamp"]))
    lines.append({"event_type": "nothing"})
    found = tmp_path_factory.mktemp("filtered") / "log.jsonl"
    found.write_bytes(b"".join(orjson.dumps(each) + b"\n" for each in lines))
    return found


def found(file: Path, chosen: Filter) -> dict[str, Any]:
    history = EventFile(file, ReadOptions(chosen=chosen))
    units = run_backtest(Backtest(history, POLICIES), lambda _: None, processes=1)
    return report(history.name, POLICIES, units, chosen=chosen)


@pytest.mark.parametrize(
    ("chosen", "places"),
    [
        (Filter(), [*PLACES]),
        (Filter(tenant="b"), [OTHER]),
        (Filter(workflow_type="order"), [TYPE]),
        (Filter("acme", "refund"), [ACME, DOMAIN, NONE]),
        (Filter(domain="x"), [DOMAIN]),
        (Filter("acme", "refund", "retail"), [ACME]),
        (Filter(tenant="nobody"), []),
    ],
)
def test_unjoined_predictions_are_counted_by_the_filter(
    file: Path, chosen: Filter, places: list[Any]
) -> None:
    result = found(file, chosen)
    count = sum(PLACES[place] for place in places)
    counts = result["read"]
    any_domain = chosen.domain and chosen.tenant in (None, "acme")  # as its completions name none
    may_be = count + (PLACES[NONE] if any_domain else 0)
    assert (result["outcomes"], counts["unmatched"], counts["unresolved"]) == (
        count, 2 * may_be, 3 * count,
    )  # fmt: skip
    assert counts["filtered"] == sum(PLACES.values()) - count


def test_sentence_and_page_name_the_log_of_a_count(file: Path) -> None:
    whole, narrowed = found(file, Filter()), found(file, Filter(domain="x"))
    assert whole["read"]["whole_log"] == []
    assert narrowed["read"]["filter"]["domain"] == "x"
    assert narrowed["read"]["whole_log"] == ["records", "events", "duplicates", "refused"]
    assert skipped(whole["read"]) == "skipped: 1 in all"
    assert skipped(narrowed["read"]) == "skipped: 1 in the whole log, whatever is filtered"
    (result,) = [each for each in caveats(narrowed) if each.startswith("Not judged")]
    assert result.startswith(
        "Not judged: 18 unmatched (a completion with no open start before it; also where it names "
        "no domain) and 12 unresolved"
    )
    assert "1 refused in the whole log" in read(narrowed)
    assert "in the whole log" not in read(whole)
