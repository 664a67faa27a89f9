"""Speculation in agents of Pydantic AI (the extra `pydantic-ai`).

`SpeculationCapability` is one of the `capabilities` of an `Agent`.
"""

try:
    import pydantic_ai.capabilities  # noqa: F401
except ImportError as error:
    raise ImportError(
        "pydantic-ai is not installed: pip install 'headstart[pydantic-ai]'"
    ) from error

from headstart.integrations.pydantic_ai.capability import SpeculationCapability

__all__ = ["SpeculationCapability"]
