"""An event with the required fields, and one with every field."""

from __future__ import annotations

from typing import Any

NOW = 1_760_000_000_000
BASE: dict[str, Any] = {
    "id": "0199c82c-c000-7abc-8def-0123456789ab",
    "event_type": "task_complete",
    "tenant": "acme",
    "workflow_type": "refund",
    "workflow_id": "w1",
    "timestamp": NOW,
}
FULL: dict[str, Any] = {
    **BASE,
    "task_id": "t1",
    "user_id": "u7",
    "agent_id": "a1",
    "session_id": "s1",
    "tool_id": "search",
    "success": True,
    "confidence": 0.87,
    "data": {
        "context": {"domain": "retail", "complexity": 3, "vip": True},
        "query": "where is it",
        "query_hash": "abc",
        "response": "there",
        "concepts": ["order"],
        "domains": ["retail"],
        "plan": {"steps": [1, 2]},
        "agents_used": ["a1"],
        "insights": ["late"],
        "attachments": [{"uri": "s3://b/k", "type": "image/png", "hash": "sha256:00"}],
        "prediction": {
            "tool_id": "search",
            "mode": "speculative",
            "reasoning": "usual",
            "was_correct": True,
            "speculated": False,
        },
        "result": {"output": None, "execution_time_ms": 12, "gain_ms": 3.5, "cost_ms": 0},
        "decision": {"type": "x", "action": "y", "reasoning": "z", "accepted": False},
        "outcome": "partial",
        "target_id": "e1",
        "accepted": True,
        "reward": -1.5,
        "source": "system",
    },
    "origin": ["spool", 4],
}
