"""What a secret looks like: patterns of text, and names of keys whose values are secret.

Data only; `scrubbing` applies it. Each pattern has a hint that every
match holds, so that one quick look at an event's bytes tells whether to take it apart.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from headstart.arguments.checks import InvalidArgument, flag, identifier


@dataclass(frozen=True)
class Pattern:
    """A kind of secret. `expression`: its group `secret` is replaced, or the whole match.

    An expression reads no text twice over, or a stranger's text stops the shipper for
    minutes: what repeats is possessive or bounded, and a long run that proves to be no secret is
    matched too, without the group.

    `hint` is a regular expression of folded bytes (lower case, digits as 0, hyphens as _)
    that is found wherever the pattern is; it must begin with a literal to be quick. Without a
    hint every event is taken apart, which costs ten times as much.
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
        """Return the expression; only ASCII counts, as in the folded bytes."""
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
"""Names of keys whose values are secret, wherever in the name they stand."""

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
"""What is looked for everywhere, in this order."""

_CARD: Final = re.compile(
    r"(?<![A-Za-z0-9.])(?:[2-6]\d{13,18}(?![A-Za-z0-9]|\.\d)"
    r"|(?<!-)(?:[2-6]\d{3}([ -])\d{4}\1\d{4}\1\d{2,7}|3\d{3}([ -])\d{6}\2\d{4,5})(?![A-Za-z0-9-]))"
)
_NOT_DIGITS: Final = str.maketrans("", "", " -")


def find_cards(text: str, replace: Callable[[str], str]) -> str:
    """Return the text with its payment card numbers (14 to 19 digits) replaced."""

    def judge(found: re.Match[str]) -> str:
        return replace(found[0]) if is_card(found[0].translate(_NOT_DIGITS)) else found[0]

    return _CARD.sub(judge, text)


def is_card(digits: str) -> bool:
    """Whether a card network may have issued this number: its range, and Luhn (ISO/IEC 7812-1)."""
    if not 14 <= len(digits) <= 19 or digits[0] not in "23456":
        return False
    if digits[0] == "2" and not "2221" <= digits[:4] <= "2720":
        return False
    total = 0
    for place, digit in enumerate(map(int, reversed(digits))):
        doubled = digit * (1 + place % 2)
        total += doubled - 9 if doubled > 9 else doubled
    return total % 10 == 0
