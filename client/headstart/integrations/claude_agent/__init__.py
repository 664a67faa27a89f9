"""Speculation in agents of the Claude Agent SDK (the extra `claude-agent`)."""

try:
    import claude_agent_sdk as _  # noqa: F401 - so that a missing one is named here
except ImportError as error:
    raise ImportError(
        "claude-agent-sdk is not installed: pip install 'headstart[claude-agent]'"
    ) from error

from headstart.integrations.claude_agent.options import speculating

__all__ = ["speculating"]
