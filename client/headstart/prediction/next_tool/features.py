"""What the next tool is predicted from: hashed contexts and words of a run's history."""

from __future__ import annotations

from typing import Final

from headstart.prediction.argument_values.argument_model import ArgumentModel
from headstart.prediction.argument_values.argument_templates import RESULT, UNUSED
from headstart.prediction.history.run_history import RunHistory
from headstart.prediction.next_tool.tool_model import ToolFeatures, ToolModel
from headstart.prediction.stable_hash import combined

_WORDS: Final = 8
_ROOT: Final = 7
_USER_WORD, _USER_WORD_AFTER, _RESULT_WORD, _LATER_WORD = 11, 12, 13, 14
_MOST_LEFT: Final = 2
_RATIO: Final = 0.25


def features(run: RunHistory, tools: ToolModel, arguments: ArgumentModel) -> ToolFeatures:
    """Return the features of the decision that is due."""
    named: tuple[tuple[str, int, int], ...] = ()
    if run.fresh:
        named = tools.name_words.named(run.agent_words, run.user_words)
    return ToolFeatures(_contexts(run, _left(run, arguments)), _words(run), named)


def _contexts(run: RunHistory, left: int) -> tuple[int, ...]:
    fourth, third, second, last = run.events
    before, tool = run.tools
    one = combined(last, 21)
    two = combined(one, second)
    three = combined(two, third)
    by_tool = combined(combined(last, 22), tool)
    return (
        _ROOT, one, two, three, combined(three, fourth),
        combined(by_tool, left), combined(by_tool, run.outcome),
        combined(combined(last, 23), run.tools_used),
        combined(combined(last, 24), run.last_call), combined(by_tool, run.agent),
        combined(combined(by_tool, before), combined(left, run.failed)),
    )  # fmt: skip


def _left(run: RunHistory, arguments: ArgumentModel) -> int:
    """Return 1 to 3 if the last call took a value of a list, of which 0, 1 or more are left."""
    skeleton = run.last_skeleton
    for place in skeleton.leaves if skeleton else ():
        leaf = arguments.leaves.get(place.any_index)
        if leaf is None:
            continue
        best, values = _RATIO, None
        for i, spec in enumerate(leaf.specs):
            if spec[0] == RESULT and spec[3] == UNUSED:
                ratio = (leaf.numbers[3 * i] + 0.5) / (leaf.numbers[3 * i + 1] + 1.0)
                if ratio > best and (at := run.values_at(spec[1], spec[2])):
                    best, values = ratio, at
        if values is not None:
            used, left = run.used_at.get(place.any_index, {}), 0
            for key in values.keys:
                left += key not in used
                if left == _MOST_LEFT:
                    break
            return left + 1
    return 0


def _words(run: RunHistory) -> tuple[int, ...]:
    hash_text = run.hash
    user = [hash_text(word) for word in run.user_words[:_WORDS]]
    tool = run.tools[-1]
    if run.fresh:
        after = combined(tool, _USER_WORD_AFTER)
        return (
            *[combined(_USER_WORD, word) for word in user],
            *[combined(after, word) for word in user],
        )
    result, later = combined(tool, _RESULT_WORD), combined(tool, _LATER_WORD)
    return (
        *[combined(result, hash_text(word)) for word in run.result_words],
        *[combined(later, word) for word in user],
    )
