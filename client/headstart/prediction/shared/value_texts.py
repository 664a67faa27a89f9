"""Constants and skeletons as JSON texts, which keep what codecs of events change: NaN, large
integers, the difference between 1 and 1.0.

A skeleton is `[tool, structure]`. In its structure null is a leaf, `[0, [name, structure], ...]` an
object and `[1, structure, ...]` a list: as a JSON object, the name of an argument such as
`password` before its null would be taken for a secret by the scrubber.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from itertools import repeat
from typing import Any, Final

from headstart.prediction.history.json_leaves import (
    DEEPEST,
    Structure,
    Unusable,
    filled,
    key_text,
    leaves_of,
    value_key,
)
from headstart.prediction.history.skeletons import Skeleton, skeleton_key
from headstart.prediction.private_values import LONGEST_CONSTANT
from headstart.prediction.shared.invalid_decision import InvalidDecision
from headstart.prediction.shared.record_limits import LONGEST_NAME
from headstart.prediction.stable_hash import Hash, salted_hash

Salt = Callable[[str], bytes]
"""Returns the salt of a text under the key of an executor."""
LARGEST_TEXT: Final = 4_096  # bytes
_OBJECT, _LIST = 0, 1


def constant_text(value: object) -> str:
    """Return a constant as text."""
    return json.dumps(value, ensure_ascii=False)


def skeleton_text(skeleton: Skeleton) -> str:
    """Return a skeleton as text."""
    members = [skeleton.tool, _form_of(skeleton.structure)]
    return json.dumps(members, ensure_ascii=False, separators=(",", ":"))


def constant_salt(value: object, salt: Salt) -> bytes:
    """Return the salt in the hash of a constant."""
    return salt(key_text(_constant_key(value)))


def skeleton_salt(skeleton: Skeleton, salt: Salt) -> bytes:
    """Return the salt in the hash of a skeleton."""
    return salt(skeleton_key(skeleton.tool, skeleton.paths))


def verified_text(text: object, identity: int, salt: bytes, *, is_skeleton: bool) -> str:
    """Return the text if it is one of a constant, or of a skeleton, and its salted hash is
    `identity`. Raises `InvalidDecision`."""
    if not isinstance(text, str):
        raise InvalidDecision("value is no text")
    try:
        if len(text.encode()) > LARGEST_TEXT:
            raise InvalidDecision(f"value has more than {LARGEST_TEXT} bytes")
        value = json.loads(text)
        if is_skeleton:
            tool, paths, _ = _skeleton_members(value)
            hashed = skeleton_key(tool, paths)
        else:
            hashed = key_text(_constant_key(value))
    except InvalidDecision:
        raise
    except (ValueError, TypeError, RecursionError, Unusable) as error:
        raise InvalidDecision(f"value is no JSON text of this kind: {error}") from error
    if salted_hash(hashed, salt) != identity:
        raise InvalidDecision("value has another hash than the one it is sent for")
    return text


def read_constant(text: str, identity: int, hash_any: Hash) -> tuple[object] | None:
    """Return the constant with this hash; None if the text is of another value."""
    try:
        value = json.loads(text)
        return (value,) if hash_any(key_text(_constant_key(value))) == identity else None
    except (ValueError, RecursionError):
        return None


def read_skeleton(text: str, identity: int, hash_any: Hash) -> Skeleton | None:
    """Return the skeleton with this hash; None if the text is of another one."""
    try:
        found = Skeleton(*_skeleton_members(json.loads(text)), hash_any)
    except (ValueError, TypeError, RecursionError, Unusable):
        return None
    return found if found.identity == identity else None


def _constant_key(value: object) -> Any:
    key = value_key(value)
    if key is None or (isinstance(value, str) and len(value) > LONGEST_CONSTANT):
        raise InvalidDecision("value is no constant: it is too long, or no leaf")
    return key


def _skeleton_members(members: Any) -> tuple[str, list[str], Structure]:
    if not isinstance(members, list) or len(members) != 2:
        raise InvalidDecision("value is no list of tool and structure")
    tool, form = members
    if not isinstance(tool, str) or len(tool) > LONGEST_NAME:
        raise InvalidDecision("value: tool is no name")
    structure = _structure_of(form, 0)
    if not isinstance(structure, dict):
        raise InvalidDecision("value: the structure is no object")
    return tool, [path for path, _, _ in leaves_of(filled(structure, repeat(0)))], structure


def _form_of(structure: Structure) -> Any:
    if structure is None:
        return None
    if isinstance(structure, Mapping):
        return [_OBJECT, *([name, _form_of(below)] for name, below in structure.items())]
    return [_LIST, *map(_form_of, structure)]


def _structure_of(form: Any, depth: int) -> Structure:
    if form is None:
        return None
    if not isinstance(form, list) or depth > DEEPEST or form[:1] not in ([_OBJECT], [_LIST]):
        raise InvalidDecision("value: the structure is nested too deeply, or no structure")
    kind, *members = form
    if depth and not members:
        raise InvalidDecision("value: an empty object or list is a leaf")
    if kind == _LIST:
        return [_structure_of(below, depth + 1) for below in members]
    found: dict[str, Structure] = {}
    for member in members:
        if not isinstance(member, list) or len(member) != 2 or not isinstance(member[0], str):
            raise InvalidDecision("value: a member is no list of name and structure")
        found[member[0]] = _structure_of(member[1], depth + 1)
    if list(found) != sorted(found) or len(found) < len(members):
        raise InvalidDecision("value: names are not in order")
    return found
