"""Result files of tau-bench and tau2-bench (Sierra Research): simulated conversations with tools.

tau-bench: a JSON array of {task_id, reward, trial, traj: messages}. tau2-bench: one object with
`simulations`, each with `messages` (or `ticks`, of voice), and `info` about agent and domain; or a
folder with such an object in results.json and a file for each simulation in `simulations/`. Tool
calls are those of assistant messages, in OpenAI's form (`function.name`) or tau2's own (`name`).
Not here: the content of a run's steps (`tau_steps`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from replay.files.input import CannotRead
from replay.importers.agent_runs import (
    Run,
    Unmapped,
    files_of,
    list_of,
    object_of,
    objects,
    objects_of,
    refuse,
    run_of,
    text_or,
)
from replay.importers.tau_steps import tau_steps

FOLDER: Final = "simulations"
RESULTS: Final = "results.json"


def tau_runs(files: Path | Iterable[Path], unmapped: Unmapped) -> Iterator[Run]:
    """Yield the runs of result files; of a simulation that is there twice, the longer one.

    Raises `NotOfThisForm`, `CannotRead` and `OSError`.
    """
    kept: dict[str, Run] = {}
    for number, file in enumerate(files_of(files)):
        found = False
        for place, (id, run) in enumerate(_runs_of(file, unmapped)):
            found = True
            if run is None:
                continue
            name = id or f"\0{number} {place}"
            if name in kept:
                unmapped.duplicates["simulations"] += 1
            if name not in kept or len(run["steps"]) >= len(kept[name]["steps"]):
                kept[name] = run
        if not found:
            why = "no tau-bench results: neither traj nor simulations in it"
            refuse(file, why, unmapped)
    yield from kept.values()


def _runs_of(file: Path, unmapped: Unmapped) -> Iterator[tuple[str, Run | None]]:
    """Yield runs with their simulations' ids; None for an object of the form without a run."""
    for each in objects(file, unmapped):
        if isinstance(each.get("simulations"), list) or _is_index(file, each):
            yield "", None
            yield from _tau2(each, unmapped)
            if _is_index(file, each):
                yield from _beside(file, each, unmapped)
        elif isinstance(each.get("traj"), list):
            steps, after = tau_steps(each["traj"], unmapped)
            domain = _domain_in_name(file.stem)
            task, trial = each.get("task_id"), each.get("trial")
            yield "", run_of("tau-bench", domain, None, task, steps, trial) | after
        elif "task_id" in each and ("messages" in each or "ticks" in each):
            yield from _tau2({"info": _info_above(file), "simulations": [each]}, unmapped)
        else:
            unmapped.add("entries without traj or simulations")


def _is_index(file: Path, results: Mapping[str, Any]) -> bool:
    """Return whether an object is that of a folder, whose simulations are in files of their own."""
    has_index = "info" in results and not results.get("simulations")
    return has_index and ("simulation_index" in results or (file.parent / FOLDER).is_dir())


def _beside(
    file: Path, results: Mapping[str, Any], unmapped: Unmapped
) -> Iterator[tuple[str, Run | None]]:
    """Yield the runs of the files beside a results.json, and count those that are missing."""
    there = sorted((file.parent / FOLDER).glob("*.json"))
    index = results.get("simulation_index")
    listed = {str(each.get("id")) for each in index or () if isinstance(each, dict)}
    if missing := listed.difference(each.stem for each in there):
        unmapped.add(f"simulations of the index without a file in {FOLDER}/", len(missing))
    for each in there:
        for simulation in objects(each, unmapped):
            yield from _tau2({**results, "simulations": [simulation]}, unmapped)


def _info_above(file: Path) -> Any:
    """Return the info of agent and domain from the results.json above a simulation's own file."""
    results = file.parent.parent / RESULTS
    if file.parent.name != FOLDER or not results.is_file():
        return None
    try:
        return next((each.get("info") for each in objects(results, Unmapped())), None)
    except (OSError, CannotRead):
        return None


def _tau2(results: Mapping[str, Any], unmapped: Unmapped) -> Iterator[tuple[str, Run | None]]:
    info = object_of(results.get("info"), "info", unmapped)
    environment = object_of(info.get("environment_info"), "environment_info", unmapped)
    agent = object_of(info.get("agent_info"), "agent_info", unmapped)
    domain, model = environment.get("domain_name"), agent.get("llm")
    for each in objects_of(results.get("simulations"), "simulations", "simulations", unmapped):
        messages = each.get("messages")
        if messages is None and isinstance(each.get("ticks"), list):
            messages = _of_ticks(each["ticks"], unmapped)
        if not isinstance(messages, list):
            unmapped.add("simulations without messages")
            continue
        steps, after = tau_steps(messages, unmapped)
        run = run_of("tau2-bench", domain, model, each.get("task_id"), steps, each.get("trial"))
        yield text_or(each.get("id"), ""), run | after


def _of_ticks(ticks: list[Any], unmapped: Unmapped) -> list[Any]:
    """Return the messages in the ticks of a voice simulation."""
    messages: list[Any] = []
    for tick in objects_of(ticks, "ticks", "ticks", unmapped):
        at = tick.get("timestamp")
        for role, calls in (("assistant", "agent_tool_calls"), ("user", "user_tool_calls")):
            if tick.get(calls):
                messages.append({"role": role, "tool_calls": tick[calls], "timestamp": at})
        messages += list_of(tick.get("agent_tool_results"), "agent_tool_results", unmapped)
    return messages


def _domain_in_name(stem: str) -> str | None:
    return next((name for name in ("airline", "retail", "telecom") if name in stem), None)
