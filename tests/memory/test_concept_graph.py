"""Which concepts appear together: counts, and the page that draws them."""

from __future__ import annotations

import json
import re
from collections import Counter
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import psycopg
import pytest
from typer.testing import CliRunner

from cli.main import app
from cli.memory.concept_page import concept_page, spread_out
from memory.retrieval.concepts import ConceptCount, ConceptGraph, ConceptPair
from tests.memory.consolidation.repeating import consolidated, repeated, task
from tests.memory.consolidation.repeating import stored as keep
from tests.memory.stored_episodes import StoredEpisodes

HOSTILE = '</svg><script src="https://example.com/x.js">'


def test_what_is_connected_is_near() -> None:
    weights = np.zeros((6, 6))
    for a, b in ((0, 3), (1, 4), (2, 5)):
        weights[a, b] = weights[b, a] = 10
    at = spread_out(weights)
    distance = np.linalg.norm(at[:, None] - at[None], axis=2)
    assert max(distance[0, 3], distance[1, 4], distance[2, 5]) < distance[0, [1, 2, 4, 5]].min()
    assert np.isfinite(at).all()
    assert (spread_out(weights) == at).all()


@pytest.mark.parametrize("count", [1, 2, 3, 120])
def test_the_page_stands_alone_and_escapes_names(count: int) -> None:
    names = [HOSTILE, *(f"concept {number}" for number in range(count - 1))]
    concepts = [ConceptCount(name, 5) for name in names]
    pairs = [ConceptPair(a, b, 3, 1.5, 1 / 3) for a, b in combinations(sorted(names[:20]), 2)]
    page = concept_page(ConceptGraph(9, concepts, pairs), f"Concepts of {HOSTILE}")
    assert "<script" not in page
    assert not re.search(r"(src|href)\s*=\s*[\"'](?!data:)", page.replace("&quot;", ""))
    assert page.count("<circle") == min(count, 80)
    assert "nan" not in page.lower()


@pytest.mark.integration
def test_the_command_counts_pairs(stored: StoredEpisodes, tmp_path: Path) -> None:
    file = tmp_path / "concepts.html"
    where = ["memory", "graph", "--postgres", stored.dsn, "--tenant", "tenant-2"]
    more = ["--json", "--outcome", "success", "--concepts", "500", "--pairs", "5000"]
    ended = CliRunner().invoke(app, [*where, *more, "--html", str(file)])
    found = json.loads(ended.stdout.splitlines()[-1])
    made = [e for e in stored.of("tenant-2").values() if e.outcome == "success"]
    concepts = Counter(concept for each in made for concept in each.concepts)
    pairs = Counter(pair for each in made for pair in combinations(sorted(each.concepts), 2))
    assert found["episodes"] == len(made)
    assert {each["concept"]: each["episodes"] for each in found["concepts"]} == concepts
    assert {(each["a"], each["b"]): each["episodes"] for each in found["pairs"]} == pairs
    first = found["pairs"][0]
    assert first["episodes"] == max(pairs.values())
    expected = concepts[first["a"]] * concepts[first["b"]] / len(made)
    assert first["lift"] == pytest.approx(first["episodes"] / expected, abs=1e-3)
    shares = {(each["a"], each["b"]): each["share"] for each in found["pairs"]}
    assert shares == {pair: round(count / len(made), 3) for pair, count in pairs.items()}
    assert "<svg" in file.read_text()
    ended = CliRunner().invoke(app, [*where, *more, "--related"])
    related = json.loads(ended.stdout.splitlines()[-1])["pairs"]
    assert [each for each in found["pairs"] if pairs[each["a"], each["b"]] > 0.2 * len(made)] == (
        related
    )
    none = CliRunner().invoke(app, [*where[:-1], "nobody"])
    assert (none.exit_code, none.stdout) == (1, "")
    assert CliRunner().invoke(app, [*where, "--outcome", "good"]).exit_code == 2


@pytest.mark.integration
def test_statistics_name_the_concepts_that_a_fifth_of_the_episodes_have_together(
    migrated: str,
) -> None:
    """Merged runs count, episodes without a concept do not, and tenants are apart."""
    keep(migrated, *repeated(5), *task("other", argument="W2", query="Another", day=9))
    assert consolidated(migrated).merged == 4
    with psycopg.connect(migrated) as connection:
        concepts = "UPDATE episodes SET concepts = %s WHERE workflow_id = %s"
        connection.execute(concepts, [["order", "refund", "rare"], "other"])
    keep(migrated, *task("rival", tenant="rival"))
    found = statistics(migrated, "--tenant", "acme")
    assert found["related_concepts"] == [
        {"tenant": "acme", "a": "order", "b": "refund", "episodes": 6, "share": 1.0}
    ], "rare is in a sixth of the runs"
    with psycopg.connect(migrated) as connection:
        connection.execute(concepts, [["order", "rare"], "other"])
    found = statistics(migrated)
    assert [
        (each["tenant"], each["episodes"], each["share"]) for each in (found["related_concepts"])
    ] == [("rival", 1, 1.0), ("acme", 5, 0.833)]
    plain = CliRunner().invoke(app, ["memory", "stats", "--postgres", migrated])
    assert "order and refund 83%" in plain.stdout


def statistics(dsn: str, *words: str) -> dict[str, Any]:
    ended = CliRunner().invoke(app, ["memory", "stats", "--postgres", dsn, "--json", *words])
    found: dict[str, Any] = json.loads(ended.stdout.splitlines()[-1])
    return found
