"""The steps of a simulated conversation of tau-bench or tau2-bench, from its messages.

A turn is one message of the agent. A call's result is the content of the tool's message with the
call's id; messages of the user and the agent are those between calls, as in `run_steps`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from replay.importers.agent_runs import (
    NO_NAME,
    Unmapped,
    iso_ms,
    list_of,
    object_of,
    objects_of,
    step_of,
)
from replay.importers.talk import message_fields
from topics.spans.content import content_of
from topics.spans.conversation import Message, read_messages
from topics.spans.unwrapping import LONGEST_RESULT


def tau_steps(
    messages: list[Any], unmapped: Unmapped
) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Return the agent's calls in order, and the messages after the last of them."""
    read = _Conversation(unmapped)
    for message in objects_of(messages, "messages", "messages", unmapped):
        read.add(message)
    user_after, said_after = message_fields(read.talk)
    after = {"user_after": user_after, "said_after": said_after}
    return read.steps, after if user_after or said_after != [None] else {}


@dataclass
class _Conversation:
    """What was read. `talk`: messages since the last call; `seen_at`: of the agent's last input."""

    unmapped: Unmapped
    steps: list[dict[str, Any]] = field(default_factory=list)
    talk: list[Message] = field(default_factory=list)
    turn: int = -1
    seen_at: int | None = None
    _by_id: dict[str, dict[str, Any]] = field(default_factory=dict)

    def add(self, message: Mapping[str, Any]) -> None:
        """Read the next message."""
        role = message.get("role")
        if role == "tool":
            for answer in self._answers(message):
                self._answered(answer)
            return
        self.talk += read_messages([{"role": role, "content": message.get("content")}], ()).given
        calls = list_of(message.get("tool_calls"), "tool_calls", self.unmapped)
        if role != "assistant":
            if calls:
                self.unmapped.add("tool calls of the simulated user", len(calls))
            self.seen_at = iso_ms(message.get("timestamp"))
            return
        self.turn += 1
        for call in objects_of(calls, "tool_calls", "tool calls", self.unmapped):
            self._called(call, message)

    def _called(self, call: Mapping[str, Any], message: Mapping[str, Any]) -> None:
        function = object_of(call.get("function"), "function of tool calls", self.unmapped)
        tool = function.get("name") or call.get("name")
        if not isinstance(tool, str) or not tool:
            self.unmapped.add("tool calls without a name")
            return
        if tool == NO_NAME:
            self.unmapped.add(f"tool calls named {NO_NAME}, which means the end of a run")
            return
        user_before, said_before = message_fields(self.talk)
        self.talk = []
        step = step_of(tool, iso_ms(message.get("timestamp"))) | {
            "args": self._arguments(function if "arguments" in function else call),
            "result": None, "user_before": user_before, "said_before": said_before,
            "turn": self.turn, "seen_at": self.seen_at,
        }  # fmt: skip
        self.steps.append(step)
        self._by_id[str(call.get("id"))] = step

    def _arguments(self, function: Mapping[str, Any]) -> dict[str, Any] | None:
        given = function.get("arguments")
        if given == "":  # as the APIs of models give no arguments
            return {}
        content = content_of(given, None)
        for reason in content.left_out:
            self.unmapped.add(reason)
        if content.arguments is None:
            self.unmapped.incomplete["calls without arguments by name"] += 1
        return content.arguments

    def _answers(self, message: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
        inner = message.get("tool_messages")
        if inner is None:
            yield message
        yield from objects_of(inner, "tool_messages", "tool_messages", self.unmapped)

    def _answered(self, message: Mapping[str, Any]) -> None:
        own = self._by_id.get(str(message.get("tool_call_id") or message.get("id")))
        if own is None or message.get("requestor") == "user":
            return
        ended = iso_ms(message.get("timestamp"))
        self.seen_at = ended
        if None not in (ended, own["called_at"]) and ended < own["called_at"]:
            self.unmapped.add("answers before their call")
            ended = None
        content = content_of(None, message.get("content"))
        for reason in content.left_out:
            self.unmapped.add(reason)
        if content.is_cut:
            self.unmapped.incomplete[f"results cut to {LONGEST_RESULT:,} characters"] += 1
        own |= {
            "returned_at": ended, "error": _failed(message), "result": content.result,
            "result_chars": content.result_characters,
        }  # fmt: skip


def _failed(message: Mapping[str, Any]) -> bool:
    content = message.get("content")
    return message.get("error") is True or (
        isinstance(content, str) and content.startswith("Error")
    )
