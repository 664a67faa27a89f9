"""The arguments and the result of a tool's call, from the attributes of each instrumentation.

The official GenAI conventions, pydantic-ai in both versions of its attributes, Google ADK, Vercel
AI, OpenInference, OpenLLMetry, Langfuse, LangSmith, Laminar, LangWatch, MLflow, Genkit; Strands as
events of the span.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from topics.spans.storable import MOST_LEVELS, NotStorable, storable
from topics.spans.unwrapping import (
    bare_argument,
    cut,
    json_or_text,
    unwrapped_arguments,
    unwrapped_result,
)

_ARGUMENTS: Final = (
    "gen_ai.tool.call.arguments", "tool_arguments", "gcp.vertex.agent.tool_call_args",
    "ai.toolCall.args", "ai.toolCall.input", "traceloop.entity.input", "input.value",
    "langfuse.observation.input", "gen_ai.prompt", "lmnr.span.input", "langwatch.input",
    "mlflow.spanInputs", "genkit:input",
)  # fmt: skip
_RESULTS: Final = (
    "gen_ai.tool.call.result", "tool_response", "gcp.vertex.agent.tool_response",
    "ai.toolCall.result", "ai.toolCall.output", "traceloop.entity.output", "output.value",
    "langfuse.observation.output", "gen_ai.completion", "lmnr.span.output", "langwatch.output",
    "mlflow.spanOutputs", "genkit:output",
)  # fmt: skip
_NOT_SET: Final = (None, "", "<not specified>")
"""The last is Google ADK's."""
_WRAPPERS: Final = {
    "traceloop.span.kind": "input_str", "traceloop.entity.input": "input_str",
    "langsmith.span.kind": "input",
}  # fmt: skip
"""The key that LangChain's callbacks put around arguments, by an attribute of the producer."""
LONGEST_ERROR: Final = 2_000
"""Characters of an error's message that are kept."""


class CallContent(NamedTuple):
    """The call that a span records.

    `arguments`: None where they are not known, or not by their names; `bare`: the value of the one
    argument whose name is not recorded, else None. `result`: None if none is recorded, and
    `result_characters` its full length; `is_cut`: it was longer than is kept. `failed`: the result
    is marked as an error. `call`: the model's id of the call, "" if the result has none.
    `left_out`: what cannot be stored as JSON, and why; it is None above. `texts`: of that, by
    "arguments" and "results", what was recorded as text.
    """

    arguments: dict[str, Any] | None = None
    bare: str | None = None
    result: Any = None
    result_characters: int = 0
    is_cut: bool = False
    failed: bool = False
    call: str = ""
    left_out: tuple[str, ...] = ()
    texts: Mapping[str, str] = MappingProxyType({})


def call_content(
    attributes: Mapping[str, Any], events: Iterable[Mapping[str, Any]] = (), status: str = ""
) -> CallContent:
    """Return the arguments and the result that a tool's span has; of a failed call its error.

    `attributes`: those of the span; `events`: its span events, each with `name` and `attributes`;
    `status`: the message of its status.
    """
    by_name = {str(each.get("name")): each.get("attributes") for each in events}
    given = next(
        (attributes[key] for key in _ARGUMENTS if attributes.get(key) not in _NOT_SET), None
    )
    result = next(
        (attributes[key] for key in _RESULTS if attributes.get(key) not in _NOT_SET), None
    )
    if given is None and isinstance(of_event := by_name.get("gen_ai.tool.message"), Mapping):
        given = of_event.get("content")
    if result is None and isinstance(of_event := by_name.get("gen_ai.choice"), Mapping):
        result = of_event.get("message")
    if result is None and isinstance(of_event := by_name.get("exception"), Mapping):
        result = _message_of(of_event)
    if result is None and status:
        result = status.splitlines()[0][:LONGEST_ERROR]
    wrapper = next((name for key, name in _WRAPPERS.items() if key in attributes), "")
    return content_of(given, result, wrapper)


def content_of(given: Any, result: Any, wrapper: str = "") -> CallContent:
    """Return arguments and result, of which `given` and `result` are the recorded forms.

    `wrapper`: the key that LangChain's callbacks put around the arguments; "" for none.
    """
    left_out: list[str] = []
    arguments = unwrapped_arguments(given, wrapper)
    bare = bare_argument(given, wrapper) if arguments is None else None
    arguments, bare = (
        _stored("arguments", arguments, left_out),
        _stored("arguments", bare, left_out),
    )
    texts = dict[str, str]()
    if isinstance(given, str) and (left_out or _is_deep_object(bare)):
        texts["arguments"] = given
    if result is None:
        return CallContent(arguments, bare, left_out=tuple(left_out), texts=texts)
    message = unwrapped_result(result, wrapped=bool(wrapper))
    stored = _stored("results", message.content, left_out)
    if stored is None and message.content is not None and isinstance(result, str):
        texts["results"] = result
    kept = cut(stored)
    return CallContent(
        arguments, bare, kept.value, kept.characters, kept.is_cut, message.failed, message.call,
        tuple(left_out), texts,
    )  # fmt: skip


def _is_deep_object(bare: str | None) -> bool:
    """Return whether a text begins like an object that nests too deeply to be read at all."""
    return bare is not None and bare.lstrip()[:1] == "{" and bare.count("{") > MOST_LEVELS


def _stored(what: str, value: Any, left_out: list[str]) -> Any:
    """Return a value as JSON can hold it; None, with the reason in `left_out`, if it cannot."""
    try:
        return storable(value, numbers_as_text=what == "results")
    except NotStorable as reason:
        left_out.append(f"{what} that {reason}")
        return None


def _message_of(exception: Mapping[str, Any]) -> str | None:
    message = exception.get("exception.message") or exception.get("exception.type")
    return str(message)[:LONGEST_ERROR] if message else None


class NamedCall(NamedTuple):
    """A call as a model's answer, or the input of a tool node, names it."""

    call: str
    tool: str
    arguments: dict[str, Any]


def named_calls(attributes: Mapping[str, Any]) -> list[NamedCall]:
    """Return the calls in the input of a span around tools, as LangGraph's node `tools` has them.

    OpenInference's tool span has one argument without its name; here are all, as JSON.
    """
    found = []
    for key in ("input.value", "traceloop.entity.input"):
        value = json_or_text(attributes.get(key))
        if isinstance(value, Mapping):
            value = value.get("inputs")
        for each in value if isinstance(value, list) else [value]:
            if isinstance(each, Mapping) and (call := named_call(each)) is not None:
                found.append(call)
    return found


def named_call(each: Mapping[str, Any]) -> NamedCall | None:
    """Return the call that an object names, in LangChain's, OpenAI's or the conventions' form."""
    inner = each.get("function")
    function = inner if isinstance(inner, Mapping) else {}
    tool = each.get("name") or function.get("name")
    given = next(
        (
            of[key]
            for of in (each, function)
            for key in ("args", "arguments", "input")
            if of.get(key) is not None
        ),
        None,
    )
    arguments = unwrapped_arguments(given)
    if not isinstance(tool, str) or arguments is None:
        return None
    try:
        arguments = storable(arguments)
    except NotStorable:
        return None
    call = each.get("id")
    return NamedCall(call if isinstance(call, str) else "", tool, arguments)


def by_its_name(bare: str, tool: str, call: str, named: Iterable[NamedCall]) -> NamedCall | None:
    """Return the call among `named` whose one argument has the value `bare`; by its id if known."""
    for each in named:
        if each.tool != tool or (call and each.call and each.call != call):
            continue
        values = [*each.arguments.values()]
        if (call and each.call == call) or (len(values) == 1 and str(values[0]) == bare):
            return each
    return None
