"""Prints the packages of an image: constraints.txt without those for development and `up`.

`python deploy/pinned.py constraints.txt pyproject.toml`. Uses only the standard library, because it
runs before anything is installed.
"""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path

_IN_IMAGE = ("otlp",)
"""Extras of the service that the image has too."""
_OF_CLIENT = {"aws-msk-iam-sasl-signer-python"}
"""Packages of extras of the client that the image has too: the login to Amazon MSK by IAM."""


def left_out(project: str) -> set[str]:
    """Return the packages of the extras that neither the image nor its build needs."""
    whole = tomllib.loads(project)
    tables = whole["project"]
    needed = set(map(_name, [*tables["dependencies"], *whole["build-system"]["requires"]]))
    extras = tables["optional-dependencies"]
    extra = {_name(each) for name in extras if name not in _IN_IMAGE for each in extras[name]}
    return extra - needed - _OF_CLIENT


def pinned(constraints: str, without: set[str]) -> str:
    """Return the pinned packages with their hashes, except those in `without`."""
    blocks = re.split(r"(?m)^(?=[A-Za-z0-9])", constraints)
    return "".join(block for block in blocks if block and _name(block) not in without)


def _name(requirement: str) -> str:
    found = re.match(r"[\w.-]+", requirement)
    return re.sub(r"[-_.]+", "-", found[0] if found else "").lower()


if __name__ == "__main__":
    _, file, project = sys.argv
    print(pinned(Path(file).read_text(), left_out(Path(project).read_text())), end="")
