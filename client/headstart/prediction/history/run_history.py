"""What one run has shown so far: texts, results and calls. It never leaves the executor.

Everything is bounded: the last texts, the results of the last tools, the first values of each.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import Any, Final

from headstart.prediction.history.json_leaves import Key
from headstart.prediction.history.result_values import ResultValues, ValuesAtPath
from headstart.prediction.history.skeletons import Skeleton
from headstart.prediction.history.text_tokens import TextTokens
from headstart.prediction.history.tokens import tokens, words
from headstart.prediction.stable_hash import Hash, combined

NOTHING: Final = 1
"""Stands for the event, tool or call before the first."""
USER_TURN: Final = 2
_FAILED: Final = 3
_MOST_TEXTS, _MOST_RESULTS, _MOST_USED, _MOST_CALLS = 8, 8, 256, 512
_MOST_TOOLS, _MOST_NAMES, _MOST_LEAVES = 32, 128, 256
_WORDS, _AGENT_WORDS, _RESULT_WORDS = 32, 60, 12
_LONGEST_STATUS: Final = 40


def _drop_oldest(table: dict[Any, Any], limit: int) -> None:
    while len(table) > limit:
        del table[next(iter(table))]


class RunHistory:
    """One run, as far as it has come."""

    def __init__(self, agent: str, hash_text: Hash, hash_any: Hash) -> None:
        self.hash = hash_text  # for texts of bounded length
        self.hash_any = hash_any
        self.agent = hash_any(agent)
        self.user_origin, self.agent_origin = hash_text("\0user"), hash_text("\0agent")
        self.events = [NOTHING] * 4  # the last four: a tool (failed or not), or a user's turn
        self.tools = [NOTHING] * 2
        self.tools_used = 0  # the exclusive or of the tools' hashes, each once
        self._tools_seen: set[int] = set()
        self.last_call = self.call_before = NOTHING
        self.calls_made: dict[int, None] = {}  # hashes of whole calls
        self.fresh = False  # the user has written since the last call
        self.outcome = NOTHING  # shape and status of the last result
        self.failed = False  # the last call has failed
        self.texts: list[TextTokens] = []
        self.followers: dict[int, list[dict[int, tuple[object, Key]]]] = {}
        """Of the texts by origin: `TextTokens.after`."""
        self.user_words: list[str] = []
        self.agent_words: list[str] = []
        self.result_words: list[str] = []
        self.user_vocabulary: set[str] = set()
        self.user_tokens: set[Key] = set()
        self.agent_tokens: set[Key] = set()
        self.results: dict[int, ResultValues] = {}  # by tool, the latest last
        self.arguments: dict[int, dict[int, tuple[object, Key]]] = {}
        self.last_skeleton: Skeleton | None = None  # of the last call
        self.by_name: dict[int, tuple[object, Key]] = {}
        self.used_at: dict[int, dict[Key, None]] = {}  # values that a leaf had before
        self.used: dict[Key, None] = {}
        self.constants: dict[int, tuple[object, Key]] = {}  # that this user may have, by hash

    @property
    def after(self) -> int:
        """What the next call follows: the user's turn, or the last tool."""
        return USER_TURN if self.fresh else self.tools[-1]

    def user(self, text: str) -> None:
        """Take in a message of the user."""
        found = self._text(self.user_origin, text, 160)
        self.user_tokens = self._keys_in(found)
        self.user_words = words(found, _WORDS)
        if len(self.user_vocabulary) < 2_000:
            self.user_vocabulary.update([token.lower() for token in found])
        self._event(USER_TURN)
        self.fresh = True

    def said(self, text: str) -> None:
        """Take in a message of the agent."""
        found = self._text(self.agent_origin, text, 240)
        self.agent_tokens = self._keys_in(found)
        self.agent_words = words(found, _AGENT_WORDS)

    def result(self, tool: int, result: object, failed: bool) -> None:
        """Take in the result of a call."""
        if isinstance(result, str):
            if not failed:
                self._text(tool, result, 120)
            self.result_words = [t.lower() for t in tokens(result[:160], 16)]
        else:
            self.result_words = _members(result)
        self.failed = failed
        self.outcome = combined(self.hash(_outcome(result)), failed)
        self.results.pop(tool, None)
        self.results[tool] = ResultValues(result, self.hash)
        _drop_oldest(self.results, _MOST_RESULTS)
        if failed:
            self.events[-1] = combined(self.events[-1], _FAILED)

    def called(self, tool: int, call: int, skeleton: Skeleton | None,
               values: Sequence[tuple[object, Key]]) -> None:  # fmt: skip
        """Take in a call that was made; `skeleton` is None if its arguments are not learned."""
        self._event(tool)
        self.tools = [self.tools[-1], tool]
        if tool not in self._tools_seen and len(self._tools_seen) < _MOST_LEAVES:
            self._tools_seen.add(tool)
            self.tools_used ^= tool
        self.call_before, self.last_call = self.last_call, call
        self.calls_made[call] = None
        self.fresh = False
        self.last_skeleton = skeleton
        leaves = skeleton.leaves if skeleton else ()
        arguments = {}
        for leaf, (value, key) in zip(leaves, values, strict=True):
            used = self.used_at.setdefault(leaf.any_index, {})
            used[key] = None
            _drop_oldest(used, _MOST_USED)
            arguments[leaf.path_hash] = self.by_name[leaf.name_hash] = value, key
            self.used[key] = None
        self.arguments[tool] = arguments
        for table, limit in ((self.arguments, _MOST_TOOLS), (self.by_name, _MOST_NAMES),
                             (self.used_at, _MOST_LEAVES), (self.used, _MOST_CALLS),
                             (self.calls_made, _MOST_CALLS)):  # fmt: skip
            if len(table) > limit:
                _drop_oldest(table, limit)

    def values_at(self, tool: int, path: int) -> ValuesAtPath | None:
        """Return the values at a path of a tool's last result."""
        result = self.results.get(tool)
        return result.paths.get(path) if result else None

    def _event(self, event: int) -> None:
        self.events = [*self.events[1:], event]

    def _keys_in(self, found: list[str]) -> set[Key]:
        """Return the tokens of the text that was taken in last, and the keys of its numbers."""
        return {*found, *(key for _, _, key in self.texts[0].numbers.values())}

    def _text(self, origin: int, text: str, limit: int) -> list[str]:
        found = tokens(text, limit)
        self.texts.insert(0, TextTokens(origin, found, self.hash))
        del self.texts[_MOST_TEXTS:]
        self.followers = {}
        for text_tokens in self.texts:
            self.followers.setdefault(text_tokens.origin, []).append(text_tokens.after)
        return found


def _outcome(result: object) -> str:
    if isinstance(result, str):
        return result[:12] if len(result) > 12 else f"={result}"
    if isinstance(result, list | tuple):
        return ("[]", "[1")[len(result)] if len(result) < 2 else "["
    if isinstance(result, dict):
        status = result.get("status")
        return "{" + status[:_LONGEST_STATUS] if isinstance(status, str) else "{"
    return "other"


def _members(result: object) -> list[str]:
    """Return short texts about the members of an object: `status=open`, `items#3`."""
    found: list[str] = []
    if not isinstance(result, dict):
        return found
    for name, value in islice(result.items(), 100):
        name_ = str(name)[:40] if isinstance(name, str) else ""
        if isinstance(value, str):
            if len(value) <= 16 and not any(c.isdigit() for c in value):
                found.append(f"{name_}={value}")
        elif isinstance(value, bool) or value is None:
            found.append(f"{name_}={value}")
        elif isinstance(value, list):
            found.append(f"{name_}#{min(len(value), 3)}")
        if len(found) >= _RESULT_WORDS:
            break
    return found
