"""The modules of openai-agents, imported by name: its package is called `agents`, as others are."""

from __future__ import annotations

from importlib import import_module
from typing import Any, Final


def _imported() -> Any:
    """Return the package. Raises `ImportError` if it is missing, or another has its name."""
    try:
        found = import_module("agents")
    except ImportError as error:
        raise ImportError(
            "openai-agents is not installed: pip install 'headstart[openai-agents]'"
        ) from error
    if not hasattr(found, "RunHooks"):
        raise ImportError(
            f"the package `agents` in {getattr(found, '__file__', None)} is not openai-agents: "
            "install headstart[openai-agents] in an environment without that package"
        )
    return found


sdk: Final = _imported()
"""The package."""
tools: Final[Any] = import_module("agents.tool")
tool_context: Final[Any] = import_module("agents.tool_context")
tracing_scope: Final[Any] = import_module("agents.tracing.scope")
traces: Final[Any] = import_module("agents.tracing.traces")
