"""Masks passwords and keys in everything that is printed or logged.

Error messages of many libraries contain addresses with passwords, so text is searched for the forms
of passwords (URLs, connection strings, assignments) and for the secrets that this process was
configured with (`remember_secret`, `remember_environment`).
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from typing import Final
from urllib.parse import quote, unquote

HIDDEN: Final = "***"

_NAMES: Final = r"[\w.\-]*(?:password|passwd|passphrase|secret|token|operators_key|api[_\-]?key)"
_BEFORE_HOST: Final = re.compile(r"(?<![\w.+\-/:])([\w.+\-]+:)[^\s\"'/@]+(?=@[\w.\-\[\]]+:\d)")
"""`user:password@host:port` without a scheme."""
_IN_URL: Final = re.compile(r"(://[^/@:\s\"]*:)[^\s\"]+(?=@)")
_IN_QUERY: Final = re.compile(rf"([?&]{_NAMES}=)[^&\s]+", re.IGNORECASE)
_ASSIGNED: Final = re.compile(
    rf"""((?<![\w?&])["']?{_NAMES}["']?\s*(?:=|(?<=["'])\s*:)\s*)"""
    r"""(?:'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|[^\s'"]+)""",
    re.IGNORECASE,
)
_FORMS: Final = (_IN_URL, _BEFORE_HOST, _IN_QUERY, _ASSIGNED)
_ADDRESS: Final = re.compile(
    r"\s*(?:(?:rediss?(?:\+(?:sentinel|cluster))?|unix|postgres(?:ql)?)://\S*|[\w.\-]+:\d+(?:/\w*)?"
    r"|(?:\w+\s*=\s*(?:'(?:[^'\\]|\\.)*'|[^\s']+)(?:\s+|$))+)\s*",
    re.IGNORECASE,
)
"""A URL or connection string of Redis or Postgres."""
_UNENCODED: Final = re.compile(r"://[^/@:\s]*:[^\s@]*[/?#@]\S*@")
_VARIABLE: Final = re.compile(
    r"(?:HEADSTART_|KAFKA_)\w*(?:PASSWORD|SECRET|(?<!KAFKA_SSL)_KEY)|PGPASSWORD"
)
"""Environment variables whose value is a secret; that of a TLS key is a path."""
_ADDRESS_VARIABLES: Final = ("HEADSTART_POSTGRES", "HEADSTART_REDIS", "HEADSTART_EMBEDDING_URL")
_SHORTEST: Final = 6
"""Shorter secrets are masked only by their form: they may be part of any word."""

_NO_SECRETS: Final = frozenset({"headstart", "postgres"})
"""Passwords of test installations that occur in every message."""

_secrets: dict[str, re.Pattern[str]] = {}
"""Only ever added to: log lines of other threads are masked meanwhile."""


def masked(text: str) -> str:
    """Return `text` with every password, token and key replaced by `***`.

    Recognises `scheme://user:password@host`, `user:password@host:port`, `password=...` in URLs and
    connection strings, `name="..."` for names that end in password, secret, token or key, and
    remembered secrets.
    """
    found = [secret for secret in list(_secrets) if secret in text]  # a copy: threads add secrets
    for secret in sorted(found, key=len, reverse=True):  # a shorter one may be part of it
        text = _secrets[secret].sub(HIDDEN, text)
    return _by_form(text)


def masked_address(address: str) -> str:
    """Return a masked address of Redis or Postgres; `***` if it is not a URL or connection string.

    Any part of other text (`redis-cli -a ...`) may be a password.
    """
    return masked(address) if not address or _ADDRESS.fullmatch(address) else HIDDEN


def _by_form(text: str) -> str:
    for form in _FORMS:
        text = form.sub(rf"\1{HIDDEN}", text)
    return text


def needs_encoding(url: str) -> bool:
    """Return whether a URL's password seems to contain an unencoded / ? # or @.

    Such a URL is split at the wrong place, and parts of the password are taken for the host.
    """
    return _UNENCODED.search(url) is not None


def remember_secret(secret: str) -> None:
    """Mask this secret wherever it appears from now on; ignored if shorter than 6 characters."""
    for form in (secret, unquote(secret), quote(secret, safe="")):
        if len(form) >= _SHORTEST and form not in _NO_SECRETS:
            _secrets[form] = re.compile(rf"(?<!\w){re.escape(form)}(?!\w)")


def passwords_in(address: str) -> Iterator[str]:
    """Yield the passwords of a URL or connection string, as written and decoded."""
    for form in _FORMS:
        for match in form.finditer(address):
            password = match[0][len(match[1]) :].strip("'\"")
            yield password
            yield unquote(password)


def remember_passwords(*addresses: str) -> None:
    """Mask the passwords of these URLs and connection strings wherever they appear.

    One that is also the user, host or database is masked by its form only, as messages need those.
    """
    for address in addresses:
        others = _by_form(address)
        for password in passwords_in(address):
            if password not in others:
                remember_secret(password)


def remember_environment() -> None:
    """Mask the secrets in this process's environment, before anything reads them.

    Those in files that variables name are remembered when they are read.
    """
    for name, value in os.environ.items():
        if _VARIABLE.fullmatch(name):
            remember_secret(value)
        elif name in _ADDRESS_VARIABLES:
            remember_passwords(value)
