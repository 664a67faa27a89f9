"""The compiled scanner is lent where it can be had; where it cannot, nothing else changes."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kernels import loader
from processing.kernel_handle import install_kernels, kernels
from tests.patience import until

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def nothing_lent() -> Iterator[None]:
    before = kernels()
    install_kernels(None)
    yield
    install_kernels(before)


def test_without_numba_a_worker_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> Any:
        raise ImportError(name)

    monkeypatch.setattr(loader, "import_module", missing)
    assert not loader.load()
    assert kernels() is None


@pytest.mark.parametrize("kept", [True, False])
def test_it_is_compiled_elsewhere_where_it_is_not_kept(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, kept: bool
) -> None:
    module, compiled = SimpleNamespace(), list[bool]()
    if kept:
        (tmp_path / loader.COMPLETE).touch()
    (tmp_path / "scan.nbi").touch()  # of a process that was ended before all was compiled
    monkeypatch.setattr(loader, "prepared", lambda: (module, tmp_path))
    monkeypatch.setattr(loader, "compile_elsewhere", lambda: compiled.append(True))
    monkeypatch.setattr(loader, "warm", lambda _module: None)
    assert loader.load()
    assert kernels() is module
    assert compiled == ([] if kept else [True])


def test_what_an_image_has_is_copied_and_not_compiled(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    shipped, folder = tmp_path / "shipped" / "a", tmp_path / "cache" / "a"
    (shipped / "kernels").mkdir(parents=True)
    (shipped / "kernels" / "scan.nbi").write_text("code")
    monkeypatch.setattr(loader, "SHIPPED", tmp_path / "shipped")
    assert not loader.copy_shipped(folder)  # an image's build was interrupted
    (shipped / loader.COMPLETE).touch()
    monkeypatch.setattr(loader, "prepared", lambda: (SimpleNamespace(), folder))
    monkeypatch.setattr(loader, "compile_elsewhere", lambda: pytest.fail("it compiles"))
    monkeypatch.setattr(loader, "warm", lambda _module: None)
    assert loader.load()
    assert (folder / "kernels" / "scan.nbi").read_text() == "code"
    assert (folder / loader.COMPLETE).exists()
    assert not loader.copy_shipped(tmp_path / "cache" / "b")  # of another machine


def test_caches_of_other_files_are_ignored(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Numba looks at one file of several; a cache may outlive the files."""
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "cache"))
    folders, config = [], SimpleNamespace(CACHE_DIR="")
    for text, seconds in (("a", 1), ("b", 1), ("a", 1), ("a", 2)):
        source = tmp_path / "kernels" / "layout.py"
        source.parent.mkdir(parents=True, exist_ok=True)
        source.write_text(text)
        os.utime(source, (seconds, seconds))
        file = tmp_path / "kernels" / "loader.py"
        monkeypatch.setattr(loader, "__file__", str(file))
        monkeypatch.setattr(loader, "import_module", importing(config))
        folders.append(loader.prepared()[1])
    assert folders[0] == folders[2]
    assert len(set(folders)) == 3


def importing(config: SimpleNamespace) -> Any:
    def imported(name: str) -> Any:
        if name == "numba":
            return SimpleNamespace(config=config, __version__="1")
        if name == "llvmlite.binding":
            return import_module(name)
        cache = SimpleNamespace(cache_path=f"{config.CACHE_DIR}/compiled")
        return SimpleNamespace(scan=SimpleNamespace(_cache=cache))

    return imported


def test_where_nothing_can_be_kept_a_worker_goes_on(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def nowhere() -> Any:
        raise RuntimeError("cannot be kept")

    monkeypatch.setattr(loader, "prepared", nowhere)
    assert not loader.load()
    assert kernels() is None


def test_the_compiling_process_ends_with_its_worker(tmp_path: Path) -> None:
    """A worker that ends again and again must leave no process behind each time."""
    worker = subprocess.Popen(
        [sys.executable, "-c", "from kernels.loader import compile_elsewhere as c; c()"],
        cwd=ROOT,
        env={**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)},
    )
    children = Path(f"/proc/{worker.pid}/task/{worker.pid}/children")
    try:
        until(lambda: bool(children.read_text().split()))
        child = int(children.read_text().split()[0])
    finally:
        worker.kill()
        worker.wait()
    until(lambda: not Path(f"/proc/{child}").exists())
