"""The layout of the tests: a test module stands alone, so that it can be renamed, moved or deleted.

What several of them use is in a plain module beside them.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
FILES = sorted(TESTS.rglob("*.py"))


def imported_names(tree: ast.AST) -> Iterator[str]:
    """Yield each module that is imported, and each name that is imported from one."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.relative_to(TESTS).as_posix())
def test_no_module_imports_a_test_module(path: Path) -> None:
    names = imported_names(ast.parse(path.read_text(), str(path)))
    found = [name for name in names if any(part.startswith("test_") for part in name.split("."))]
    assert found == [], "move what is shared to a module beside it that is named after its content"
