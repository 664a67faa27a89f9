"""What pages name in backticks exists: files, modules, symbols, options, settings, metrics.

The log of measurements is left out: it names code of its time.
"""

from __future__ import annotations

import ast
import builtins
import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from cli.main import whole
from docs.generate import page
from settings import Settings
from settings.variables import EXECUTOR
from tests.docs.pages import ROOT, TEXTS, spans

HISTORY = "docs/measurements/log.md"
PAGES = [name for name in TEXTS if name != HISTORY]
LISTED = "docs/explanation/architecture.md"
"""Its tables name modules relative to their package."""
SOURCES = ("*.py", "*.toml", "*.lua", "*.sql", "*.yml", "Makefile", "Dockerfile", "*.json")
FILE = re.compile(r"[\w./-]+\.(?:py|sql|lua|yml|toml|md|env)")
DOTTED = re.compile(r"[a-z_]\w*(?:\.\w+)+(?:\(.*\))?")
CAMEL = re.compile(r"[A-Z][a-z0-9]+(?:[A-Z][a-z0-9]+)+(?:\.\w+)?(?:\(.*\))?")
CALL = re.compile(r"[a-z_]\w*\(\)")
CONSTANT = re.compile(r"[A-Z]+(?:_[A-Z]+)+")
METRIC = re.compile(r"headstart_\w+")
OPTION = re.compile(r"--[a-z][a-z-]+")
PACKAGES = {path.parent.name for path in ROOT.glob("*/__init__.py")} | {"headstart", "tests"}
SERVICE = set(Settings.model_fields)
METRICS = set(re.findall(r"`(headstart_\w+)`", page("metrics.md")))
NOT_OURS = {  # of Kafka and its clients
    "--allow-host", "--operation", "LogAppendTime", "PartitionRecords", "headstart_new",
}  # fmt: skip
ROLES = {"headstart_sink", "headstart_worker", "headstart_reader"}  # of Postgres


@cache
def sources() -> str:
    """Return the text of every source of ours, one behind the other."""
    texts = []
    for pattern in SOURCES:
        for path in ROOT.rglob(pattern):
            parts = path.relative_to(ROOT).parts
            if not any(part.startswith(".") or part == "docs" for part in parts[:-1]):
                texts.append(path.read_text(errors="replace"))
    return "\n".join(texts)


@cache
def words() -> frozenset[str]:
    """Return every word in a source of ours."""
    return frozenset(re.findall(r"\w+", sources()))


@cache
def identifiers() -> frozenset[str]:
    """Return every name that Python sources of ours define, import or use, and Python's own."""
    found = set(dir(builtins))
    for path in map(ROOT.joinpath, files()):
        if path.suffix == ".py":
            found |= names(path)
    return frozenset(found)


@cache
def files() -> frozenset[str]:
    """Return every file and folder of the repository, with each path that ends like it."""
    found = set()
    for top in ROOT.iterdir():
        if top.name.startswith(".") and top.name not in {".ci", ".dockerignore"}:
            continue
        for path in [top, *(top.rglob("*") if top.is_dir() else ())]:
            if "__pycache__" not in path.parts:
                found.add(path.relative_to(ROOT).as_posix())
    return frozenset(found)


@cache
def endings() -> frozenset[str]:
    """Return each file's path within its package."""
    return frozenset(
        path.partition("/")[2].removeprefix("headstart/") for path in files() if "/" in path
    )


def exists(path: str, page: str) -> bool:
    """Return whether a page may name this file or folder so."""
    path = path.rstrip("/")
    near = ((ROOT / page).parent / path).exists()
    return path in files() or f"client/{path}" in files() or near or (
        page == LISTED and path in endings()
    )  # fmt: skip


def is_path(span: str) -> bool:
    """Return whether a span names a file or folder of the repository."""
    top = span.partition("/")[0]
    return bool("/" in span and " " not in span and (ROOT / top).is_dir() and top) or (
        bool(FILE.fullmatch(span)) and "/" in span and not span.startswith(("/", "~", "."))
    )


@pytest.mark.parametrize("name", PAGES)
def test_files_and_folders_exist(name: str) -> None:
    named = {span for span in spans(name) if is_path(span)}
    named = {path for span in named for path in expanded(span)}
    assert {path for path in named if not exists(path, name)} == set()


def expanded(span: str) -> list[str]:
    """Return the paths that `a/{b,c}.py` stands for."""
    if not (found := re.search(r"\{([\w,]+)\}", span)):
        return [span]
    return [span.replace(found[0], each) for each in found[1].split(",")]


@pytest.mark.parametrize("name", PAGES)
def test_modules_and_their_names_exist(name: str) -> None:
    """A dotted name of a package of ours is a module, a name in it, or a literal in a source."""
    for span in spans(name):
        if FILE.fullmatch(span):
            continue
        if DOTTED.fullmatch(span) and span.partition(".")[0] in PACKAGES:
            assert resolves(span.partition("(")[0]), span


def resolves(dotted: str) -> bool:
    """Return whether a dotted name is a module, a name within one, or in quotes in a source."""
    if f'"{dotted}"' in sources() or f'"{dotted}.' in sources():
        return True
    for end in range(len(dotted.split(".")), 0, -1):
        parts = dotted.split(".")[:end]
        base = ROOT / "client" if parts[0] == "headstart" else ROOT
        module = base.joinpath(*parts)
        for file in (module.with_suffix(".py"), module / "__init__.py"):
            if file.exists():
                rest = dotted.split(".")[end:]
                return not rest or rest[0] in names(file)
    return False


@cache
def names(file: Path) -> frozenset[str]:
    """Return the names that a module defines, imports or uses."""
    tree = ast.parse(file.read_text())
    found = set()
    for node in ast.walk(tree):
        for kind in ("name", "id", "attr", "asname", "arg"):
            found.add(str(getattr(node, kind, "")))
    return frozenset(found)


@pytest.mark.parametrize("name", PAGES)
def test_symbols_exist(name: str) -> None:
    """Classes, functions called without arguments, and constants are names of our sources."""
    for span in spans(name):
        if CAMEL.fullmatch(span) or CALL.fullmatch(span):
            missing = set(re.findall(r"\w+", span.partition("(")[0])) - identifiers() - NOT_OURS
            assert not missing, span
        if CONSTANT.fullmatch(span) and not span.startswith("HEADSTART_"):
            assert span in words(), span


@pytest.mark.parametrize("name", PAGES)
def test_settings_metrics_and_options_exist(name: str) -> None:
    for span in spans(name):
        setting = span.partition("=")[0]
        if setting.startswith("HEADSTART_"):
            known = setting in EXECUTOR or setting.removeprefix("HEADSTART_").lower() in SERVICE
            assert known or setting == "HEADSTART_" or setting in words(), span
        if METRIC.fullmatch(span) and span not in NOT_OURS | ROLES:
            assert span in METRICS, span
        if OPTION.fullmatch(option := re.split("[ =]", span)[0]):
            assert option in options(), span


@cache
def options() -> frozenset[str]:
    """Return every option of our commands, and those that programs of ours name in quotes."""
    found = set(re.findall(r"""["'](--[a-z-]+)["' =]""", sources())) | NOT_OURS
    waiting: list[Any] = [whole()]
    while waiting:
        command = waiting.pop()
        waiting += getattr(command, "commands", {}).values()
        for param in getattr(command, "params", []):
            found |= {*param.opts, *param.secondary_opts}
    return frozenset(found)


def test_pages_that_sources_name_exist() -> None:
    """Comments, messages and help; a migration never changes, and names a page of its time."""
    named = set(re.findall(r"docs/[\w/-]+\.md|docs/decisions/\d{4}[\w-]*", sources()))
    pages = {path for path in files() if path.startswith("docs/")}
    missing = {each for each in named if not any(page.startswith(each) for page in pages)}
    assert missing == {"docs/scaling.md"}
