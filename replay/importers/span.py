"""One span of a trace, as the importers of traces read it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from topics.spans.content import CallContent, NamedCall
from topics.spans.conversation import ModelCall


@dataclass(slots=True)
class Span:
    """One span. `tool`: of a call, its tool's name.

    `id`, `parent`: "" where they are not known; `begin`, `end`: Unix ms. `step`: whether it is a
    step of an agent that is not a call (a model's answer, a chain), so that what is below it is not
    another view of the call above. `served`: whether it is a tool server's own view of a call.
    `call`: the model's id of the call, `order`: orders spans of one begin. `leaf`: the tool's
    name of what is a call where no other span is inside it. `content`: of a call, its arguments and
    result. `guessed`: made early, on a guess, so that the call that it answers may begin after its
    end. `messages`: what a model's call, or an agent's, was given and answered. `is_model`:
    whether it is a model's call. `named`: the calls that its input names, `named_above`: those of
    the span around it.
    """

    trace: str
    id: str = ""
    parent: str = ""
    tool: str = ""
    begin: int | None = None
    end: int | None = None
    error: bool = False
    step: bool = False
    served: bool = False
    call: str = ""
    order: str = ""
    leaf: str = ""
    content: CallContent | None = None
    messages: ModelCall | None = None
    is_model: bool = False
    guessed: bool = False
    named: Sequence[NamedCall] = ()
    named_above: Sequence[NamedCall] = ()
