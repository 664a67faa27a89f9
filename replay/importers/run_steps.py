"""The steps of an imported run: arguments, results, turns, and the messages before each.

Fields as in docs/reference/files.md. A turn is one answer of the model: calls of one turn were
made in parallel. It is found by the id of the call in the model's answer, else it is the
model's call that ended last before; without any model's call, calls that overlap are one turn.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Any

from replay.importers.agent_runs import Unmapped, step_of
from replay.importers.model_answers import ModelAnswers, call_id
from replay.importers.span import Span
from replay.importers.talk import Talk
from topics.spans.content import CallContent, by_its_name
from topics.spans.unwrapping import LONGEST_RESULT

_NOT_RECORDED = CallContent()


def described_steps(
    calls: Sequence[Span], around: Sequence[Span], unmapped: Unmapped
) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Return the steps of a run, and the messages after the last of them.

    `calls`: in the order of their begins; `around`: spans with messages, of the same traces.
    """
    answers = ModelAnswers(around)
    models = answers.models
    talk = Talk(models if any(_says(each) for each in models) else around)
    steps, turn, last, busy_until = list[dict[str, Any]](), -1, None, 0
    for call in calls:
        before = answers.before(call)
        begin = call.begin or 0
        is_new = before != last if before is not None else last is not None or begin >= busy_until
        if turn < 0 or is_new:
            turn, busy_until = turn + 1, 0
        last, busy_until = before, max(busy_until, call.end or begin)
        seen_at = models[before].begin if before is not None else None
        steps.append(_step(call, answers, unmapped) | talk.until(begin))
        steps[-1] |= {"turn": turn, "seen_at": seen_at}
    user_after, said_after = talk.rest()
    after = {"user_after": user_after, "said_after": said_after}
    return steps, after if user_after or said_after != [None] else {}


def _says(span: Span) -> bool:
    return span.messages is not None and bool(span.messages.given or span.messages.answered)


def _step(call: Span, answers: ModelAnswers, unmapped: Unmapped) -> dict[str, Any]:
    content = call.content or _NOT_RECORDED
    arguments = content.arguments
    if arguments is None and content.bare is not None:
        named = chain(call.named_above, answers.named(call))
        found = by_its_name(content.bare, call.tool, call_id(call), named)
        arguments = found.arguments if found is not None else None
    if arguments is None:
        unmapped.incomplete["calls without arguments by name"] += 1
    if content.is_cut:
        unmapped.incomplete[f"results cut to {LONGEST_RESULT:,} characters"] += 1
    made = step_of(call.tool, call.begin, call.end, error=call.error or content.failed)
    return {
        **made, "args": arguments, "result": content.result,
        "result_chars": content.result_characters,
    }  # fmt: skip
