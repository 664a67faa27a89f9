"""Every log event of the workers has a line in the reference."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/reference/log-events.md"
LOGGED = re.compile(r'log\.(?:debug|info|warning|error)\(\s*"([^"]+)"')
LISTED = re.compile(r"(?m)^\| `([a-z_.]+)` \| (?:debug|info|warning|error) \|")


NAMED = re.compile(r"(?<![\w./-])[a-z_]+\.[a-z_]+(?![\w./(])")
QUOTED = re.compile(r"`([a-z_]+\.[a-z_]+)`")
MODULES = {
    f"{path.parent.name}.{path.stem}"
    for folder in ("kernels", "memory")
    for path in (ROOT / folder).iterdir()
}
OTHERS = {"service.name", *MODULES}
"""An attribute of spans, and modules."""


def texts() -> Iterator[tuple[Path, str]]:
    """Names like those of events in pages, and in messages about logs."""
    for page in (ROOT / "docs").rglob("*.md"):
        if page != PAGE:  # it also lists earlier names
            yield from ((page, name) for name in QUOTED.findall(page.read_text()))
    for folder in ("console", "cli", "deploy", "sinks"):
        for path in (ROOT / folder).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text())):
                text = node.value if isinstance(node, ast.Constant) else None
                if isinstance(text, str) and re.search(r"\blogs?\b", text):
                    yield from ((path, name) for name in NAMED.findall(text))


def test_every_event_that_a_text_names_exists() -> None:
    listed = set(LISTED.findall(PAGE.read_text()))
    families = {name.partition(".")[0] for name in listed}
    unknown = [
        f"{path.relative_to(ROOT)}: {name}"
        for path, name in texts()
        if name.partition(".")[0] in families
        and not name.endswith((".py", ".jsonl"))
        and name not in listed | OTHERS
    ]
    assert not unknown


def test_every_event_is_listed_and_none_that_is_gone() -> None:
    folders = ROOT / "agents", ROOT / "deploy"
    sources = "".join(path.read_text() for each in folders for path in each.rglob("*.py"))
    listed = {each for each in LISTED.findall(PAGE.read_text()) if not each.startswith("kernels.")}
    assert set(LOGGED.findall(sources)) == listed
