"""Patterns of secrets, and names of keys whose values are secret; `Scrubber` applies them.

Each pattern has a hint that every match contains, so that one fast search of an event's bytes
decides whether to decode it.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from headstart.arguments.checks import InvalidArgument, flag, identifier, named_settings


@named_settings
@dataclass(frozen=True)
class Pattern:
    """A kind of secret.

    Attributes:
        name: For counts and `Scrubbing.without`.
        expression: Regular expression; its group `secret` is replaced, or the whole match. It must
            not backtrack over long text, or hostile text stops the shipper for minutes: make
            repetitions possessive or bounded, and also match a long run that proves not to be a
            secret, without the group.
        hint: Regular expression of folded bytes (lower case, digits as 0, hyphens as _) that every
            match contains; it must begin with a literal to be fast. Without a hint every event is
            decoded, which costs ten times as much.
        ignore_case: Match upper and lower case.
    """

    name: str
    expression: str
    hint: str | None = None
    ignore_case: bool = False

    def __post_init__(self) -> None:
        """Raise `InvalidArgument` naming a field of the wrong type."""
        identifier("name", self.name)
        identifier("expression", self.expression)
        if self.hint is not None and not isinstance(self.hint, str):
            raise InvalidArgument(f"hint must be a string or None, not {self.hint!r:.100}")
        flag("ignore_case", self.ignore_case)

    def compiled(self) -> re.Pattern[str]:
        """Return the compiled expression; ASCII only, as the folded bytes."""
        return re.compile(self.expression, re.ASCII | (re.IGNORECASE if self.ignore_case else 0))


_NAMES: Final = (
    r"passw(?:or)?d|passphrase|passcode|pwd|secret|credentials?|cookie|cvv|cvc"
    r"|(?:api|access|private|secret|account|signing|encryption|auth)[_ -]?key"
    r"|token(?!s|iz|[_ -]?(?:count|limit|usage|budget|type))"
)
_VALUE: Final = r"[\"'\\]*\s*[:=]\s*[\"'\\]*"
_NO_MORE: Final = r"[^\s\"'\\,;&<>{}\[\]()]"
_NO_DIGIT: Final = _NO_MORE[:-1] + r"\d]"

KEYS: Final = re.compile(_NAMES + "|authorization", re.ASCII | re.IGNORECASE)
"""Keys that contain one of these have secret values."""

PATTERNS: Final = (
    Pattern(
        "private_key",
        r"-----BEGIN [A-Z0-9 ]*PRIVATE KEY[A-Z ]*(?:-----)?[\s\S]*?"
        r"(?:-----END (?=[A-Z0-9 ]*PRIVATE KEY)[A-Z0-9 ]*+-----|\Z)"
        r"|PuTTY-User-Key-File-\d[\s\S]*?(?:Private-MAC: *[0-9a-f]+|\Z)",
        r"k(?:ey(?<=private key)|ey_file)",
    ),
    Pattern("url_password", r"://[^\s/:@\"']*:(?P<secret>[^\s/\"']+)@", r"@"),
    Pattern(
        "bearer",
        rf"\bbearer[ +]++(?P<secret>(?={_NO_DIGIT}{{0,256}}+\d){_NO_MORE}{{8,}})",
        r"b(?:earer)",
        ignore_case=True,
    ),
    Pattern(
        "authorization",
        rf"authorization{_VALUE}(?:[a-z]+ +)?(?P<secret>{_NO_MORE}{{3,}})",
        r"z(?:ation(?<=authorization))",
        ignore_case=True,
    ),
    Pattern(
        "jwt",
        r"(?P<secret>eyJ[\w=-]{4,}+\.[\w=-]{4,}+(?:\.[\w.+/=-]*+)?)|eyJ[\w=-]*+",
        r"j(?<=eyj)",
    ),
    Pattern("aws", r"AKIA[A-Z0-9]{16}", r"k(?:ia(?<=akia)[a-z0]{16})"),
    Pattern("github", r"(?:gh[pousr]_\w{36}|github_pat_\w{22,})", r"gh[pousr]_|github_pat_"),
    Pattern("gitlab", r"gl(?:pat|dt|ft|soat|rt)-[\w-]{20,}", r"gl(?:pat|dt|ft|soat|rt)_"),
    Pattern("slack", r"xox[a-z](?:-[\w-]{8,})+", r"xox[a-z]_", ignore_case=True),
    Pattern(
        "slack_webhook", r"hooks\.slack\.com/services/(?P<secret>[\w/]{8,})", r"k\.com/services"
    ),
    Pattern("sk_key", r"\b[sr]k[-_][A-Za-z0-9_-]{20,}", r"k_(?<=[sr]k_)[a-z0_]{20}"),
    Pattern("google", r"AIza[\w-]{35}", r"z(?:a(?<=aiza))"),
    Pattern("sendgrid", r"SG\.[\w-]{16,}\.[\w-]{16,}", r"g\.(?<=sg\.)"),
    Pattern("npm", r"npm_[A-Za-z0-9]{36}", r"pm_[a-z0]{36}"),
    Pattern("pypi", r"pypi-[\w-]{16,}", r"pypi_"),
    Pattern("hugging_face", r"hf_[A-Za-z0-9]{30,}", r"f_[a-z0]{30}"),
    Pattern("twilio", r"(?:AC|SK)[a-z0-9]{32}", r"c[a-z0]{32}|k[a-z0]{32}"),
    Pattern("artifactory", r"AKC[a-zA-Z0-9]{10,}", r"kc[a-z0]{10}"),
    Pattern("square", r"sq0[a-z]{3}-[\w-]{20,}", r"q0[a-z]{3}_"),
    Pattern(
        "assigned",
        rf"(?:{_NAMES})[\w.-]{{0,20}}{_VALUE}(?P<secret>{_NO_MORE}{{3,}})",
        r"pass(?:w|phrase|code)|pwd|c(?:re(?:t(?<=secret)|dential)|ookie|vv|vc)"
        r"|k(?:ey(?:(?<=[isetgnh]key)|(?<=[isetgnh][_ ]key))|en(?<=token)(?!s))",
        ignore_case=True,
    ),
)
"""The built-in patterns, in order."""

_CARD: Final = re.compile(
    r"(?<![A-Za-z0-9.])(?:[2-6]\d{13,18}(?![A-Za-z0-9]|\.\d)"
    r"|(?<!-)(?:[2-6]\d{3}([ -])\d{4}\1\d{4}\1\d{2,7}|3\d{3}([ -])\d{6}\2\d{4,5})(?![A-Za-z0-9-]))"
)
_NOT_DIGITS: Final = str.maketrans("", "", " -")


def find_cards(text: str, replace: Callable[[str], str]) -> str:
    """Return the text with its payment card numbers (14 to 19 digits) replaced."""

    def replace_card(found: re.Match[str]) -> str:
        return replace(found[0]) if is_card(found[0].translate(_NOT_DIGITS)) else found[0]

    return _CARD.sub(replace_card, text)


def is_card(digits: str) -> bool:
    """Return whether this may be a card number: known range, and Luhn (ISO/IEC 7812-1)."""
    if not 14 <= len(digits) <= 19 or digits[0] not in "23456":
        return False
    if digits[0] == "2" and not "2221" <= digits[:4] <= "2720":
        return False
    total = 0
    for index, digit in enumerate(map(int, reversed(digits))):
        doubled = digit * (1 + index % 2)
        total += doubled - 9 if doubled > 9 else doubled
    return total % 10 == 0
