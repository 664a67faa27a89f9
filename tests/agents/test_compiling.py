"""The compiled scanner is lent where it can be had; where it cannot, nothing else changes."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from agents import compiling
from processing.columns import lend, scanner


@pytest.fixture(autouse=True)
def nothing_lent() -> Iterator[None]:
    before = scanner()
    lend(None)
    yield
    lend(before)


def test_without_numba_a_worker_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> Any:
        raise ImportError(name)

    monkeypatch.setattr(compiling, "import_module", missing)
    assert not compiling.load()
    assert scanner() is None


@pytest.mark.parametrize("kept", [True, False])
def test_it_is_compiled_elsewhere_where_it_is_not_kept(
    monkeypatch: pytest.MonkeyPatch, kept: bool
) -> None:
    module, compiled = SimpleNamespace(), list[bool]()
    monkeypatch.setattr(compiling, "import_module", lambda _name: module)
    monkeypatch.setattr(compiling, "_is_kept", lambda _module: kept)
    monkeypatch.setattr(compiling, "compile_elsewhere", lambda: compiled.append(True))
    monkeypatch.setattr(compiling, "warm", lambda _module: None)
    assert compiling.load()
    assert scanner() is module
    assert compiled == ([] if kept else [True])


def test_what_was_compiled_before_a_file_changed_goes(tmp_path: Path) -> None:
    folder, cache = tmp_path / "scanning", tmp_path / "cache"
    folder.mkdir()
    cache.mkdir()
    sources = [folder / "__init__.py", folder / "text.py"]
    index = cache / "__init__.scan-1.py311.nbi"
    for path in (*sources, index):
        path.touch()
    module = SimpleNamespace(
        __file__=str(sources[0]), scan=SimpleNamespace(_cache=SimpleNamespace(cache_path=cache))
    )
    now = index.stat().st_mtime
    os.utime(index, (now + 10, now + 10))
    assert compiling._is_kept(module)
    os.utime(sources[1], (now + 20, now + 20))
    assert not compiling._is_kept(module)
    assert not index.exists()
