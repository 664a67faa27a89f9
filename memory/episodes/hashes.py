"""64-bit hashes (blake2b) that episodes are found by, as signed integers for Postgres."""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections.abc import Iterable, Mapping
from typing import Any, Final

from memory.episodes.canonical import canonical_json

CONTEXT_KEYS: Final = ("domain", "complexity")
"""Keys of the context that its hash covers, beside the workflow type."""


def hash64(*parts: str) -> int:
    """Return a signed 64-bit hash of texts; ("ab", "c") and ("a", "bc") differ."""
    digest = hashlib.blake2b(digest_size=8)
    for part in parts:
        raw = part.encode("utf-8", "surrogatepass")
        digest.update(len(raw).to_bytes(8, "little"))
        digest.update(raw)
    return int.from_bytes(digest.digest(), "little", signed=True)


def fold(text: str) -> str:
    """Return a text without differences of case, width and white space (NFKC, casefold)."""
    return " ".join(unicodedata.normalize("NFKC", text).casefold().split())


def episode_id(tenant: str, workflow_type: str, workflow_id: str) -> int:
    """Return the id of a run's episode."""
    return hash64("episode", tenant, workflow_type, workflow_id)


def id_text(id: int) -> str:
    """Return an id of an episode as events name it, such as `0x00c1f3...`: 16 hexadecimal digits.

    One number in twenty of as many decimal digits could be a payment card's, which the scrubber of
    events replaces.
    """
    return f"0x{id & (2**64 - 1):016x}"


def id_of_text(text: str) -> int | None:
    """Return the id of an `id_text`, or of a decimal number; None for another text."""
    if _HEX_ID.fullmatch(text):
        number = int(text, 16)
        return number - 2**64 if number >= 2**63 else number
    number = int(text) if _DECIMAL_ID.fullmatch(text) else 2**63
    return number if -(2**63) <= number < 2**63 else None


_HEX_ID: Final = re.compile(r"0x[0-9a-f]{16}")
_DECIMAL_ID: Final = re.compile(r"-?[0-9]{1,19}")


def query_hash(query: str) -> int | None:
    """Return the hash of the whole folded query; None for one without a character."""
    folded = fold(query)
    return hash64("query", folded) if folded else None


def text_hash(text: str) -> int:
    """Return the hash of a text as it is embedded."""
    return hash64("text", text)


def context_hash(
    workflow_type: str, context: Mapping[str, Any], keys: Iterable[str] = CONTEXT_KEYS
) -> int:
    """Return the hash of the workflow type and of `keys` of the context; missing keys count."""
    values = [canonical_json(context[key]) if key in context else "" for key in keys]
    return hash64("context", workflow_type, *values)


def first_call_hash(tool: str, arguments: str) -> int:
    """Return the hash of a call; `arguments`: canonical JSON."""
    return hash64("call", tool, arguments)
