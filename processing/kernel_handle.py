"""Access to the compiled kernels (`kernels.api`) once they are loaded.

Loading takes seconds and can fail, so no module imports them, and all work without them.
"""

from __future__ import annotations

from typing import Any

_installed: Any = None


def kernels() -> Any:
    """Return the module `kernels.api`; None while it is not loaded."""
    return _installed


def install_kernels(compiled: Any) -> None:
    """Let all of this process use the module `kernels.api`; None: no longer."""
    global _installed  # noqa: PLW0603 - once in a process
    _installed = compiled
