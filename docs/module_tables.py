"""Makes the tables of docs/explanation/architecture.md: modules, and what may import what.

A module's entry is the first paragraph of its docstring and the public names that it defines. The
import rules are import-linter's contracts in pyproject.toml.
"""

from __future__ import annotations

import ast
import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

_ROOT: Final = Path(__file__).parents[1]
_PACKAGES: Final = (
    "client/headstart", "agents", "processing", "kernels", "learners", "sinks", "topics", "replay",
    "console", "cli", "settings", "deploy", "demo", "bench",
)  # fmt: skip
"""In the order in which an event meets them."""
_MOST_NAMES: Final = 8
"""Public names that an entry lists; more of them no longer help to find a module."""


def modules() -> str:
    """Return one table for each package: its folders and modules, with what each does."""
    return "\n".join(_package(_ROOT / name, name) for name in _PACKAGES)


def _package(folder: Path, name: str) -> str:
    head = "| module | what it does | defines |\n| --- | --- | --- |\n"
    rows = "".join(_rows(folder, folder))
    return f"### {name}\n\n{_summary(_parsed(folder / '__init__.py'))}\n\n{head}{rows}"


def _rows(folder: Path, top: Path) -> Iterator[str]:
    """Yield the rows of a folder's modules, then those of the folders below it."""
    for path in sorted(folder.glob("*.py")):
        if path.name != "__init__.py":
            tree = _parsed(path)
            yield _row(path.relative_to(top).as_posix(), _summary(tree), _names(tree))
    for below in sorted(path.parent for path in folder.glob("*/__init__.py")):
        summary = f"**{_summary(_parsed(below / '__init__.py'))}**"
        yield _row(f"{below.relative_to(top).as_posix()}/", summary, "")
        yield from _rows(below, top)


def _row(name: str, summary: str, names: str) -> str:
    return f"| `{name}` | {summary} | {names} |\n"


def _parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def _summary(tree: ast.Module) -> str:
    """Return the first paragraph of a module's docstring on one line."""
    text = ast.get_docstring(tree) or ""
    return " ".join(text.partition("\n\n")[0].split()).replace("|", "\\|")


def _names(tree: ast.Module) -> str:
    """Return the public classes and functions that a module defines, as code."""
    kinds = (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    names = [node.name for node in tree.body if isinstance(node, kinds)]
    public = [f"`{name}`" for name in names if not name.startswith("_")]
    more = ", ..." if len(public) > _MOST_NAMES else ""
    return f"{', '.join(public[:_MOST_NAMES])}{more}"


def import_rules() -> str:
    """Return the layers of packages and the other contracts that import-linter checks."""
    contracts = _contracts()
    layers = next(each["layers"] for each in contracts if each["type"] == "layers")
    rows = [
        f"| {number} | {_code(layer.split(' | '))} |\n" for number, layer in enumerate(layers, 1)
    ]
    rules = [_rule(each) for each in contracts if each["type"] == "forbidden"]
    return (
        f"| layer | packages |\n| --- | --- |\n{''.join(rows)}\n"
        f"| rule | packages or modules | may not import |\n| --- | --- | --- |\n{''.join(rules)}"
    )


def _rule(contract: dict[str, Any]) -> str:
    forbidden = _code(contract["forbidden_modules"])
    allowed = contract.get("ignore_imports", [])
    if allowed:
        forbidden += f"; allowed: {_code(allowed)}"
    return f"| {contract['name']} | {_code(contract['source_modules'])} | {forbidden} |\n"


def _contracts() -> list[dict[str, Any]]:
    project = tomllib.loads((_ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    found: list[dict[str, Any]] = project["tool"]["importlinter"]["contracts"]
    return found


def _code(names: Sequence[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)
