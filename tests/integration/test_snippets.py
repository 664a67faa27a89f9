"""The snippets of the docs, run as a reader would run them: page by page, from top to bottom."""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from deploy.system import System
from headstart.connections.kafka_connections import new_producer
from headstart.keys import event_key
from tests.patience import PATIENCE_S
from tests.processes import ENVIRONMENT
from tests.secured import reading, stack_config
from topics.catalogue import EVENTS

pytestmark = [pytest.mark.integration, pytest.mark.any_broker]

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = {
    "tutorials/first-executor": 2,
    "tutorials/first-memory": 3,
    "how-to/emit": 4,
    "how-to/scrub-secrets": 1,
    "how-to/read-thresholds": 2,
    "how-to/run-guesses": 2,
    "how-to/set-gain-and-cost": 1,
    "how-to/backtest-and-tune": 3,
    "how-to/experiments": 2,
    "how-to/choose-a-learner": 2,
    "how-to/configure": 1,
    "how-to/inspect": 2,
    "how-to/override-and-kill-switch": 2,
    "how-to/watch-notices": 1,
    "how-to/dead-letters": 1,
    "how-to/recover": 4,
    "how-to/rebuild": 1,
    "how-to/export-and-import": 4,
    "how-to/upgrade": 2,
    "how-to/backup-and-restore": 1,
}
"""How many snippets of each page are run; others have none, or need Docker or other services."""

ELSEWHERE = ("make ", "headstart up")
"""How blocks begin that every test of a running system repeats, and CI itself."""
INSTEAD = {
    ".venv/bin/headstart": "headstart",
    "headstart top": "headstart top --looks 1",  # else for ever
    # There may be no notice here: then they report it, with exit code 1.
    "headstart notices list --kind drift --since 2h": (
        "{ headstart notices list --kind drift --since 2h || test $? = 1; }"
    ),
    "headstart notices list --tenant acme --limit 100 --json": (
        "{ headstart notices list --tenant acme --limit 100 --json || test $? = 1; }"
    ),
    # The record was replayed by its places; what else waits depends on the other snippets.
    'headstart dead-letters replay --all --reason "belongs to partition" --yes': (
        '{ headstart dead-letters replay --all --reason "belongs to partition" --yes || '
        "test $? = 1; }"
    ),
    # The workers may not have read the choice yet.
    "headstart learner choose 'workflow_type=refund' --back --tenant acme": (
        "{ headstart learner choose 'workflow_type=refund' --back --tenant acme || test $? = 1; }"
    ),
    "headstart dead-letters drop --all --since 1h": (
        "{ headstart dead-letters drop --all --since 1h || test $? = 1; }"
    ),
    "# correct it, then, for both groups:": "\nsed -i 's/ 7\\.0/ 0.7/' event.json",
}
PROGRAM = """
import asyncio, types
import headstart
from headstart import Emitter

KAFKA, REDIS = {kafka!r}, {redis!r}
kafka, confidence, arguments = KAFKA, 0.95, {{"query": "order 7"}}
requested = types.SimpleNamespace(id="c1", name="search", tool="search", arguments=arguments)


async def make_call(tool, arguments):
    return "made"


async def next_calls():
    return [requested]


async def snippet(thresholds, emitter):
    model = types.SimpleNamespace(next_calls=next_calls)
    context = {{"workflow_type": "refund", "workflow_id": "w1"}}
    predictor, tools = headstart.CallPredictor(), {{"search": {{"readOnlyHint": True}}}}
    calls, call = [requested], requested
    speculator = headstart.AsyncSpeculator(thresholds, emitter, annotations=tools)
    text, result, response = "Where is order 7?", "found", "It is on its way."
{body}


async def main():
    async with headstart.AsyncThresholds(REDIS) as thresholds:
        with Emitter(KAFKA) as emitter:
            await snippet(thresholds, emitter)


asyncio.run(main())
"""

Judged = Callable[..., dict[str, Any]]


@pytest.fixture(scope="module")
def alone(broker: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[System]:
    """A system that no other test uses: snippets set modes and drop dead letters."""
    config = stack_config(data=tmp_path_factory.mktemp("alone"), kafka=broker)
    with System(config, partitions=1, echo=lambda _line: None) as running:
        yield running


@pytest.fixture
def place(
    request: pytest.FixtureRequest,
    alone: System,
    judged: Judged,
    write_events: Callable[[Sequence[dict[str, Any]]], Path],
    tmp_path: Path,
) -> Path:
    """A directory with the files that the pages name, beside a log that has something on it."""
    steps = [{"tool": tool, "called_at": None, "returned_at": None, "error": False}
             for tool in ("find_user", "get_order", "issue_refund")]  # fmt: skip
    run = {"source": "made", "domain": "retail", "agent_model": "model", "trial": None}
    traces = [{**run, "task_id": str(number), "steps": steps} for number in range(120)]
    events = [judged("acme", workflow_id=f"w{number}") for number in range(120)]
    write_events(traces).rename(tmp_path / "agent-traces.jsonl")
    write_events(events).rename(tmp_path / "events.jsonl")
    (tmp_path / "executor").write_text("#!/bin/sh\n")
    (tmp_path / "executor").chmod(0o700)
    assert _run("headstart emit events.jsonl", alone, tmp_path).returncode == 0
    if any("dead-letters" in text for _, text in snippets(request.getfixturevalue("page"))):
        for _ in range(7):  # one by one: the dead letters of both groups lie side by side
            asyncio.run(_produce(alone.addresses.kafka, judged("acme", confidence=7.0)))
            assert alone.drain(PATIENCE_S)
    return tmp_path


async def _produce(kafka: str, event: dict[str, Any]) -> None:
    """Produce as third parties do, whose client checks nothing."""
    async with new_producer(kafka) as producer:
        key = event_key(event["tenant"], event["workflow_type"])
        await producer.send_and_wait(EVENTS.name, json.dumps(event).encode(), key=key)


def _run(text: str, system: System, place: Path) -> subprocess.CompletedProcess[str]:
    environment = ENVIRONMENT | {
        "HEADSTART_DATA": str(system.data),
        "HEADSTART_KAFKA": system.addresses.kafka,
        "HEADSTART_SPOOL": str(place / "spool"),
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
    }
    return subprocess.run(
        ["bash", "-euo", "pipefail", "-c", f"exec < <(yes)\n{text}"],
        cwd=place, env=environment, capture_output=True, text=True, timeout=PATIENCE_S,
        check=False,
    )  # fmt: skip


def snippets(page: str) -> list[tuple[str, str]]:
    """Language and text of the blocks of a page, without those that are pictures or settings."""
    blocks = re.findall(r"(?ms)^```(\w*)\n(.*?)^```", (DOCS / f"{page}.md").read_text())
    begins = ("headstart ", ".venv/bin/")
    return [
        (name, text)
        for name, text in blocks
        if (name or text.startswith(begins)) and not text.startswith(ELSEWHERE)
    ]


@pytest.mark.parametrize("page", PAGES)
def test_every_snippet_runs(alone: System, place: Path, page: str) -> None:
    found = snippets(page)
    assert len(found) == PAGES[page]
    for language, text in found:
        at = alone.addresses
        script = text
        for name, database in {"executor": reading(at), "memory_agent": at.postgres}.items():
            example = f"{sys.executable} {ROOT}/examples/{name}.py {at.kafka} {database}"
            script = re.sub(rf"\S+ examples/{name}.py .*", example, script)
        if language == "python":
            (place / "snippet.py").write_text(program(text, alone))
            script = f"{sys.executable} snippet.py"
        for line, instead in INSTEAD.items():
            script = re.sub(rf"(?m){line}(?=\s)", instead, script)
        ended = _run(script, alone, place)
        assert ended.returncode == 0, (text, ended.stdout, ended.stderr)
        assert alone.drain(PATIENCE_S)
    if page == "how-to/backtest-and-tune":
        assert "Backtest" in (place / "report.html").read_text()


def program(text: str, system: System) -> str:
    """A block as a program: with what the page takes for granted around it."""
    at = system.addresses
    for redis in ("redis://cache:6379/0", "redis://127.0.0.1:6379/0"):
        text = text.replace(redis, reading(at))
    # An import inside of the function would hide the module's own name from its first lines.
    text = text.replace("import headstart\n", "", 1)
    body = textwrap.indent(text.replace("127.0.0.1:9092", at.kafka), "    ")
    return PROGRAM.format(kafka=at.kafka, redis=reading(at), body=body)
