"""`speculating`: the options of an agent of the Claude Agent SDK, with speculation."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from claude_agent_sdk import ClaudeAgentOptions, HookMatcher

from headstart.integrations.claude_agent.hooks import ClaudeHooks
from headstart.integrations.claude_agent.permissions import Permissions, SubagentLimits
from headstart.integrations.claude_agent.sessions import ObservedSessions
from headstart.integrations.claude_agent.tool_servers import ToolServer
from headstart.integrations.setup import SpeculationSetup

_LOG: Final = logging.getLogger(__name__)


def speculating(
    options: ClaudeAgentOptions | None = None,
    *,
    setup: SpeculationSetup | None = None,
    **arguments: Any,
) -> ClaudeAgentOptions:
    """Return options with which an agent starts calls while the model still works them out.

        options = speculating(ClaudeAgentOptions(...), workflow_type="refund",
                              read_only=["mcp__shop__search"])

    They are for `query` and `ClaudeSDKClient`, any number of times. `options` itself is not
    changed; its hooks are kept, before those that are added. Tools of MCP servers in the process
    (`create_sdk_mcp_server`) are answered, all others observed. Tools are named as in
    `allowed_tools`.

    Args:
        options: Of the agent. Default: those of the SDK.
        setup: A set-up that several agents share, instead of `arguments`.
        **arguments: Those of `SpeculationSetup`.

    Raises:
        InvalidArgument: Names the argument that cannot be used.
    """
    given = ClaudeAgentOptions() if options is None else options
    permissions = Permissions(given.allowed_tools, given.disallowed_tools, given.permission_mode)
    sessions = ObservedSessions(SpeculationSetup.of(setup, arguments), permissions, _limits(given))
    hooks: dict[Any, Any] = dict(given.hooks or {})
    observing = ClaudeHooks(sessions)
    for event in observing.events:
        hooks[event] = [*hooks.get(event, ()), HookMatcher(hooks=[observing.observe])]
    return replace(given, hooks=hooks, mcp_servers=_answering(given.mcp_servers, sessions))


def _limits(options: ClaudeAgentOptions) -> Mapping[str, SubagentLimits]:
    return {
        name: SubagentLimits(
            None if each.tools is None else tuple(each.tools),
            tuple(each.disallowedTools or ()),
            each.permissionMode,
        )
        for name, each in (options.agents or {}).items()
    }


def _answering(servers: Any, sessions: ObservedSessions) -> Any:
    """Return servers of which those in this process answer calls by guesses."""
    if not isinstance(servers, Mapping):  # a file that names servers outside
        return servers
    return {name: _of_config(name, config, sessions) for name, config in servers.items()}


def _of_config(name: str, config: Any, sessions: ObservedSessions) -> Any:
    if not isinstance(config, Mapping) or config.get("type") != "sdk":
        return config
    if not hasattr(config["instance"], "get_request_handler"):
        _LOG.warning("the tools of %s are observed only: install mcp>=2.3", name)
        return config
    server = ToolServer(name, config["instance"], sessions)
    sessions.servers.append(server)
    return {**config, "instance": server.answering()}
