"""Finds the SQL of the repository, and the tables that it reads without naming the tenant."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from sinks.postgres.isolation import TENANT_TABLES

ROOT: Final = Path(__file__).parents[3]
PACKAGES: Final = (
    "agents", "bench", "cli", "client", "console", "demo", "deploy", "kernels", "learners",
    "memory", "processing", "replay", "settings", "sinks", "topics",
)  # fmt: skip
_NAME: Final = re.compile(r"^-- name: (\w+)\n", re.MULTILINE)
_FUNCTION: Final = re.compile(r"^CREATE FUNCTION (\w+).*?^(?:END|\);)", re.MULTILINE | re.DOTALL)
_COMMENT: Final = re.compile(r"--[^\n]*")
_READS: Final = re.compile(
    rf"(?P<verb>\b(?:FROM|JOIN|USING|UPDATE|TABLE)|,)\s+(?:ONLY\s+)?\"?(?P<table>{'|'.join(TENANT_TABLES)})"
    r"(?:_\w+)?\b\"?(?:\s+(?:AS\s+)?(?P<alias>(?!(?:AS|WHERE|ON|SET|JOIN|LEFT|INNER|CROSS|ORDER|GROUP|"
    r"LIMIT|USING|FOR|TO|IN|RETURNING|UNION|ENABLE|CONFLICT)\b)[a-z_]\w*))?"
)
_EQUAL: Final = re.compile(r"\b(\w+)\.tenant\s*=\s*(\w+)\.tenant\b")
_GIVEN: Final = re.compile(r"\b(\w+)\.tenant\s*=(?!\s*\w+\.tenant\b)")
_PLAIN: Final = re.compile(r"(?<![\w.])tenant\s*=")
_USING: Final = re.compile(r"\bJOIN\s+\w+\s+AS\s+(\w+)\s+USING\s+\(tenant,")
"""A join with the tenants of a given list."""
_STATEMENT: Final = re.compile(
    r"^\W*(?:WITH|SELECT|UPDATE|DELETE|INSERT|COPY|EXPLAIN|CREATE FUNCTION)\b"
)


class Statement(NamedTuple):
    """The text of a statement; `place`: its file and name, or its file and the table it reads."""

    place: str
    text: str


def statements() -> Iterator[Statement]:
    """Yield the named statements, the functions of migrations and the texts in Python code."""
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.sql")):
            if path.parent.name == "migrations":
                yield from _functions(path)
            elif path.parent.name == "sql":
                yield from _named(path)
        for path in sorted((ROOT / package).rglob("*.py")):
            yield from _texts(path)


def _named(path: Path) -> Iterator[Statement]:
    parts = _NAME.split(path.read_text(encoding="utf-8"))
    for name, body in zip(parts[1::2], parts[2::2], strict=True):
        yield Statement(f"{path.name} {name}", body)


def _functions(path: Path) -> Iterator[Statement]:
    for match in _FUNCTION.finditer(path.read_text(encoding="utf-8")):
        yield Statement(f"{path.name} {match[1]}", match[0])


def _texts(path: Path) -> Iterator[Statement]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    nested = {
        id(part)
        for node in ast.walk(tree)
        if isinstance(node, ast.JoinedStr)
        for part in ast.walk(node)
        if part is not node
    }
    for node in ast.walk(tree):
        if id(node) in nested:
            continue
        text = _text_of(node)
        if text is not None and _STATEMENT.search(text):
            yield Statement(str(path.relative_to(ROOT)), text)


def _text_of(node: ast.AST) -> str | None:
    if isinstance(node, ast.Constant) and isinstance(node.value, str | bytes):
        return node.value.decode(errors="replace") if isinstance(node.value, bytes) else node.value
    if isinstance(node, ast.JoinedStr):
        return "".join(_text_of(each) or "{}" for each in node.values)
    return None


def without_tenant(text: str) -> list[str]:
    """Return the tables that a statement reads without a condition on their tenant.

    The condition gives the tenant, or joins to a table or list that has one: a join of two tables
    by their tenants alone reads all.
    """
    plain = _COMMENT.sub("", text).strip()
    if not _STATEMENT.match(plain):
        return []  # creates or grants
    found = [(each["table"], each["alias"] or each["table"]) for each in _READS.finditer(plain)]
    given = {match[1] for match in _GIVEN.finditer(plain)}
    if len(found) == 1 and _PLAIN.search(plain):
        given.add(found[0][1])
    bare = [each["table"] for each in _READS.finditer(plain) if not each["alias"]]
    if len(_PLAIN.findall(plain)) >= len(bare):  # each part of a union has its own condition
        given |= set(bare)
    if "unnest(" in plain:
        given |= set(_USING.findall(plain))
    pairs = [match.groups() for match in _EQUAL.finditer(plain)]
    given |= {name for pair in pairs for name in pair} - {name for _, name in found}
    for _ in found:
        given |= {name for pair in pairs for name in pair if set(pair) & given}
    return [table for table, name in found if name not in given]


def is_optional(text: str) -> bool:
    """Return whether the condition on the tenant may be left out: `... IS NULL OR tenant = ...`."""
    return bool(re.search(r"IS NULL\s+OR\s+(?:\w+\.)?tenant\s*=", _COMMENT.sub("", text)))
