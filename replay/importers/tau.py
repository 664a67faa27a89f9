"""Result files of tau-bench and tau2-bench (Sierra Research): simulated conversations with tools.

tau-bench: a JSON array of {task_id, reward, trial, traj: messages}. tau2-bench: one object with
`simulations`, each with `messages`, and `info` about agent and domain. Tool calls are those of
assistant messages, in OpenAI's form (`function.name`) or tau2's own (`name`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from replay.importers.runs import (
    NotOfThisForm,
    Run,
    Unmapped,
    iso_ms,
    list_of,
    object_of,
    objects,
    objects_of,
    run_of,
    step_of,
)


def tau_runs(file: Path, unmapped: Unmapped) -> Iterator[Run]:
    """Yield the runs of a result file. Raises `NotOfThisForm` and `OSError`."""
    found = False
    for each in objects(file, unmapped):
        if isinstance(each.get("simulations"), list):
            found = True
            yield from _tau2(each, unmapped)
        elif isinstance(each.get("traj"), list):
            found = True
            steps = _steps(each["traj"], unmapped)
            domain = _domain_in_name(file.stem)
            yield run_of("tau-bench", domain, None, each.get("task_id"), steps, each.get("trial"))
        else:
            unmapped.add("entries without traj or simulations")
    if not found:
        why = "no tau-bench results: neither traj nor simulations in it"
        raise NotOfThisForm(file, why, unmapped)


def _tau2(results: Mapping[str, Any], unmapped: Unmapped) -> Iterator[Run]:
    info = object_of(results.get("info"), "info", unmapped)
    environment = object_of(info.get("environment_info"), "environment_info", unmapped)
    agent = object_of(info.get("agent_info"), "agent_info", unmapped)
    domain, model = environment.get("domain_name"), agent.get("llm")
    for each in objects_of(results["simulations"], "simulations", "simulations", unmapped):
        messages = each.get("messages")
        if not isinstance(messages, list):
            unmapped.add("simulations without messages")
            continue
        steps = _steps(messages, unmapped)
        yield run_of("tau2-bench", domain, model, each.get("task_id"), steps, each.get("trial"))


def _domain_in_name(stem: str) -> str | None:
    return next((name for name in ("airline", "retail", "telecom") if name in stem), None)


def _steps(messages: list[Any], unmapped: Unmapped) -> list[dict[str, Any]]:
    """Return the assistant's tool calls in order, with what their results say of errors."""
    steps: list[dict[str, Any]] = []
    by_id: dict[str, dict[str, Any]] = {}
    for message in objects_of(messages, "messages", "messages", unmapped):
        if message.get("role") == "tool":
            own = by_id.get(str(message.get("tool_call_id") or message.get("id")))
            if own is not None:
                own["returned_at"] = iso_ms(message.get("timestamp"))
                own["error"] = _failed(message)
            continue
        calls = list_of(message.get("tool_calls"), "tool_calls", unmapped)
        if calls and message.get("role") != "assistant":
            unmapped.add("tool calls of the simulated user", len(calls))
            continue
        for call in objects_of(calls, "tool_calls", "tool calls", unmapped):
            function = object_of(call.get("function"), "function of tool calls", unmapped)
            tool = function.get("name") or call.get("name")
            if not isinstance(tool, str) or not tool:
                unmapped.add("tool calls without a name")
                continue
            steps.append(step_of(tool, iso_ms(message.get("timestamp"))))
            by_id[str(call.get("id"))] = steps[-1]
    return steps


def _failed(message: Mapping[str, Any]) -> bool:
    content = message.get("content")
    return message.get("error") is True or (
        isinstance(content, str) and content.startswith("Error")
    )
