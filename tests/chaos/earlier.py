"""The tree of an earlier version, to run its processes or to build its image."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.chaos.world import code_of

ROOT = Path(__file__).parents[2]


def checkout(commit: str, folder: Path) -> Path:
    """Write the files of a commit to a new folder; return it."""
    folder.mkdir()
    # With the modes of a checkout, or an image of it would share no layer with that of this tree.
    packed = subprocess.run(
        ["git", "-c", "tar.umask=0022", "archive", "--format=tar", commit], cwd=ROOT, check=True,
        capture_output=True,
    )  # fmt: skip
    subprocess.run(["tar", "-x"], cwd=folder, check=True, input=packed.stdout)
    return folder


def compile_kernels(tree: Path) -> None:
    """Compile the kernels of a tree, which its threshold worker would do at its first start."""
    subprocess.run(
        [sys.executable, "-P", "-m", "kernels.loader", "--now"],
        env={**os.environ, **code_of(tree)}, check=True,
    )  # fmt: skip


def commit_of(name: str) -> str | None:
    """Return the id of a commit, None where there is none of this name."""
    found = subprocess.run(
        ["git", "rev-parse", "--verify", "--quiet", f"{name}^{{commit}}"], cwd=ROOT,
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    return found.stdout.strip() or None
