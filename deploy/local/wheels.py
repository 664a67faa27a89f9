"""Locates the installed wheels with the servers, without importing them: an import creates
directories in the user's home and loads a client.
"""

from importlib.util import find_spec
from pathlib import Path

from deploy.local.errors import StackError


def folder(package: str, what: str) -> Path:
    """Return the directory of an installed package. Raises `StackError` if it is missing."""
    spec = find_spec(package)
    if spec is None or spec.origin is None:
        raise StackError(
            f"embedded {what} needs the package {package.replace('_', '-')} (pip install "
            f"'headstart-service[local]'): install it, or give the address of your own {what}"
        )
    return Path(spec.origin).parent
