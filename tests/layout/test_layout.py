"""The layout is the architecture: what may import Faust, and how long anything may be.

The arrows between packages are import-linter's contracts in pyproject.toml.
"""

from __future__ import annotations

import ast
import tomllib
from pathlib import Path
from statistics import median

import pytest

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
FOLDERS = sorted(
    {name.partition(".")[0] for name in PROJECT["tool"]["setuptools"]["packages"]}
    | {"bench", "client/headstart", "examples"}
)
FILES = sorted(path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py"))
TREES = {path: ast.parse(path.read_text(), str(path)) for path in FILES}
LENGTHS = {path: len(path.read_text().splitlines()) for path in FILES}

KNOWS_FAUST = ("agents/", "bench/anchors/plain_faust.py")
"""The agents, and the plain Faust agent that they are measured against."""
FAUST = {"faust", "mode"}
SAYS_NOTHING = {"utils", "util", "helpers", "helper", "manager", "managers", "common", "misc"}
LONGEST_FILE, LONGEST_FUNCTION, MEDIAN_FILE = 400, 60, 150
MOST_METHODS, MOST_ATTRIBUTES = 34, 30
"""Of a class with its bases, so that inheritance does not hide its size. The largest classes are
`Thresholds`, whose API is wide, and `BacktestEngine`: give a new one parts instead of more members.
"""
SETTINGS = "Settings"
PARTS = ("EncryptionSettings", "KafkaSettings", "QuarantineSettings", "RetentionSettings")
"""Its attributes are the settings, a variable each; its bases, the parts, count on their own."""


def relative(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def imported(tree: ast.AST) -> set[str]:
    """Return the top-level packages that a module imports anywhere, also within functions."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and not node.level:
            found.add((node.module or "").partition(".")[0])
    return found


def test_this_suite_sees_every_package() -> None:
    homes = {path.parent for path in ROOT.glob("*/__init__.py")} - {ROOT / "tests"}
    assert {path.name for path in homes} <= set(FOLDERS)
    assert all(any(relative(path).startswith(f"{folder}/") for path in FILES) for folder in FOLDERS)


def test_packages_are_listed_for_the_wheel() -> None:
    listed = set(PROJECT["tool"]["setuptools"]["packages"])
    there = {
        relative(path.parent).replace("/", ".") for path in FILES if path.name == "__init__.py"
    }
    assert {name for name in there if not name.startswith(("client.", "bench"))} == listed


def test_packages_of_the_client_are_listed_for_its_wheel() -> None:
    project = tomllib.loads((ROOT / "client/pyproject.toml").read_text())
    there = {
        relative(path.parent).removeprefix("client/").replace("/", ".")
        for path in FILES
        if path.name == "__init__.py" and relative(path).startswith("client/")
    }
    assert there == set(project["tool"]["setuptools"]["packages"])


def test_only_the_agents_know_faust() -> None:
    knowing = {relative(path) for path, tree in TREES.items() if imported(tree) & FAUST}
    assert {path for path in knowing if not path.startswith(KNOWS_FAUST)} == set()
    assert any(path.startswith("agents/") for path in knowing)  # or this test sees nothing


@pytest.mark.parametrize("path", FILES, ids=relative)
def test_a_module_has_a_docstring(path: Path) -> None:
    if path.name == "__init__.py" and not TREES[path].body:
        return
    assert ast.get_docstring(TREES[path]), f"{relative(path)} has no docstring"


def test_no_module_is_named_for_nothing() -> None:
    named = {relative(path) for path in FILES if {path.stem, path.parent.name} & SAYS_NOTHING}
    assert named == set()


def test_no_file_is_long() -> None:
    long = {relative(path): size for path, size in LENGTHS.items() if size > LONGEST_FILE}
    assert long == {}


def test_the_median_file_is_short() -> None:
    assert median(LENGTHS.values()) < MEDIAN_FILE


def test_no_function_is_long() -> None:
    long = {
        f"{relative(path)}:{node.lineno} {node.name}": (node.end_lineno or 0) - node.lineno + 1
        for path, tree in TREES.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }
    assert {name: size for name, size in long.items() if size > LONGEST_FUNCTION} == {}


CLASSES = {
    node.name: node
    for tree in TREES.values()
    for node in ast.walk(tree)
    if isinstance(node, ast.ClassDef)
}


def members(name: str) -> tuple[set[str], set[str]]:
    """Return the methods and the attributes of a class and of its bases within the project."""
    if name not in CLASSES:
        return set(), set()
    methods, attributes = set[str](), set[str]()
    for base in CLASSES[name].bases:
        generic = base.value if isinstance(base, ast.Subscript) else base
        base_name = ast.unparse(generic).rpartition(".")[2]
        if base_name != name:  # or it is a library's class of the same name
            found = members(base_name)
            methods, attributes = methods | found[0], attributes | found[1]
    for node in CLASSES[name].body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            methods.add(node.name)
        for each in ast.walk(node):
            if isinstance(each, ast.Attribute) and isinstance(each.ctx, ast.Store):
                attributes |= {each.attr} if ast.unparse(each.value) == "self" else set()
        if isinstance(node, ast.AnnAssign | ast.Assign):
            targets = [node.target] if isinstance(node, ast.AnnAssign) else node.targets
            names = (each for target in targets for each in ast.walk(target))
            attributes |= {each.id for each in names if isinstance(each, ast.Name)}
    return methods, attributes - methods


def test_public_class_names_are_unique() -> None:
    homes: dict[str, list[str]] = {}
    for path, tree in TREES.items():
        for node in tree.body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                homes.setdefault(node.name, []).append(relative(path))
    assert {name: paths for name, paths in homes.items() if len(paths) > 1} == {}


def test_no_class_is_large() -> None:
    sizes = {name: tuple(map(len, members(name))) for name in CLASSES}
    methods, attributes = members(SETTINGS)
    for part in PARTS:
        attributes -= members(part)[1]
    sizes[SETTINGS] = len(methods), len(attributes)
    limits = (MOST_METHODS, MOST_ATTRIBUTES)
    assert {
        name: size
        for name, size in sizes.items()
        if any(count > limit for count, limit in zip(size, limits, strict=True))
    } == {}


@pytest.mark.parametrize("folder", ["learners", "processing"])
def test_the_pure_packages_know_no_clock_no_chance_and_no_network(folder: str) -> None:
    impure = {"time", "datetime", "random", "secrets", "os", "socket", "asyncio", "threading",
              "redis", "psycopg", "requests", "httpx"}  # fmt: skip
    for path, tree in TREES.items():
        if relative(path).startswith(f"{folder}/"):
            assert imported(tree) & impure == set(), relative(path)
