"""Speculation in agents of the OpenAI Agents SDK (the extra `openai-agents`)."""

from headstart.integrations.openai_agents.runner import SpeculationRunner

__all__ = ["SpeculationRunner"]
