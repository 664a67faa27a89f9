"""The compiled code (`kernels.api`), for whoever can use it where it is there.

It takes a while to be had, or cannot be; so nobody imports it, and everybody can do without.
"""

from __future__ import annotations

from typing import Any

_lent: Any = None


def kernels() -> Any:
    """Return the module `kernels.api`; None while it is not there."""
    return _lent


def install_kernels(compiled: Any) -> None:
    """Have the module `kernels.api` used by all of this process; None: no more."""
    global _lent  # noqa: PLW0603 - once in a process
    _lent = compiled
