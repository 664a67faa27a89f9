"""The image can be built: what .dockerignore lets through is enough, seen without an engine."""

from __future__ import annotations

import fnmatch
import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
RULES = (ROOT / ".dockerignore").read_text().split()


def let_through(path: str) -> bool:
    """Whether a file is part of the build context, as Docker reads the rules: the last one wins."""
    ignored = False
    parents = [path, *map(str, Path(path).parents)]
    for rule in RULES:
        pattern = rule.removeprefix("!")
        names = parents if not pattern.startswith("**/") else [Path(each).name for each in parents]
        if any(fnmatch.fnmatchcase(name, pattern.removeprefix("**/")) for name in names):
            ignored = not rule.startswith("!")
    return not ignored


@pytest.fixture(scope="module")
def context(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("context")
    tracked = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT, capture_output=True, text=True, check=True,
    ).stdout.splitlines()  # fmt: skip
    for name in filter(let_through, tracked):
        if (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, folder / name)
    return folder


def test_every_package_is_in_the_context(context: Path) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    for package in project["tool"]["setuptools"]["packages"]:
        assert (context / package.replace(".", "/")).is_dir(), f"add !{package} to .dockerignore"
    assert not (context / "tests").exists()
    assert not (context / ".git").exists()


def test_files_copied_by_the_dockerfile_exist(context: Path) -> None:
    for line in (ROOT / "deploy/Dockerfile").read_text().splitlines():
        words = line.split()
        if words[:1] == ["COPY"] and not words[1].startswith("--"):
            for source in words[1:-1]:
                assert (context / source).exists(), source


def test_it_installs_and_every_command_can_be_imported(context: Path, tmp_path: Path) -> None:
    """As the recipe does it; the dependencies are those of this environment."""
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run(
        [*pip, "--no-deps", "--no-build-isolation", "--target", tmp_path / "site", "./client", "."],
        cwd=context,
        check=True,
    )
    script = "import cli.main, headstart, sys; cli.main.whole(); print(cli.__file__)"
    ended = subprocess.run(
        [sys.executable, "-c", script],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(tmp_path / "site")},
        capture_output=True,
        text=True,
        check=True,
    )
    assert ended.stdout.strip().startswith(str(tmp_path))
