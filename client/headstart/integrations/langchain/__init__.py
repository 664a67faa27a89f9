"""Speculation in LangChain agents and LangGraph graphs (the extra `langchain`).

`SpeculationMiddleware` is for `create_agent`, `GraphSpeculation` for graphs with a `ToolNode`.
"""

try:
    import langchain.agents  # noqa: F401
    import langgraph.prebuilt  # noqa: F401
except ImportError as error:
    raise ImportError(
        "langchain and langgraph are not installed: pip install 'headstart[langchain]'"
    ) from error

from headstart.integrations.langchain.graph import GraphSpeculation
from headstart.integrations.langchain.middleware import SpeculationMiddleware

__all__ = ["GraphSpeculation", "SpeculationMiddleware"]
