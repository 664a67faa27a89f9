"""Explains errors of Redis that starting a server would not fix: of one, a cluster, or Sentinels.

The one place that knows what redis-py raises for TLS, logins and rights. Reads nothing but the
files of the client's own TLS. No message quotes an address, because it may contain a password.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final
from urllib.parse import parse_qs, urlsplit

from headstart.connections.certificate_validity import is_expired
from headstart.connections.redis_failures import NoServerAnswers, PrimaryNotFound
from headstart.connections.redis_urls import SCHEMES
from headstart.connections.trouble import Trouble
from headstart.scrubbing.masking import needs_encoding
from sinks.service_errors import (
    CERTIFICATE_REFUSED,
    CERTIFICATE_WANTED,
    ENCODED,
    EXPIRED,
    NO_TLS,
    OTHER_HOST,
    OWN_EXPIRED,
    PASSWORD_WANTED,
    UNPARSABLE,
    UNVERIFIED,
    WRONG_PASSWORD,
)

REDIS: Final = "--redis URL or HEADSTART_REDIS"
REDIS_FORM: Final = (
    "redis://USER:PASSWORD@HOST:PORT/NUMBER, rediss://... for TLS, unix://PATH, "
    "redis+sentinel://SENTINEL:PORT,SENTINEL:PORT/NAME/NUMBER, or "
    "redis+cluster://HOST:PORT,HOST:PORT"
)
NOT_PERMITTED: Final = "its ACL refuses the user a command, key or channel"
CLOSED: Final = "it closes the connection without an answer: it stops, or its port is for TLS"
CLOSED_TLS: Final = (
    "it closes the connection within TLS: it stops, or does not accept this client's certificate"
)
SILENT: Final = "it does not answer in time, or does not speak TLS"
UNUSABLE_FILES: Final = "the certificate, its key or the CA of this client cannot be used"
NAME_UNKNOWN: Final = "no Sentinel that answers knows a primary of this name"
_REFUSALS: Final = {
    WRONG_PASSWORD, PASSWORD_WANTED, EXPIRED, OWN_EXPIRED, OTHER_HOST, UNVERIFIED, NO_TLS,
    CERTIFICATE_WANTED, CERTIFICATE_REFUSED, NOT_PERMITTED, UNUSABLE_FILES,
}  # fmt: skip
"""Problems of TLS, logins and rights."""
_LOGINS: Final = (WRONG_PASSWORD, PASSWORD_WANTED)
_FILES: Final = ("ssl_ca_certs", "ssl_certfile", "ssl_keyfile")

_ANSWERS: Final = tuple(
    (re.compile(pattern, re.IGNORECASE), Trouble(what, remedy, what in _REFUSALS))
    for pattern, what, remedy in (
        (
            r"WRONGPASS|invalid username-password|invalid password|no password is set"
            r"|without any password configured",
            WRONG_PASSWORD,
            f"correct user and password in {REDIS}",
        ),
        # Redis answers the client's first HELLO with a message of its own.
        (
            r"NOAUTH|authentication required|already authenticated",
            PASSWORD_WANTED,
            f"correct user and password in {REDIS}",
        ),
        (
            r"DB index is out of range|invalid DB index",
            "it has no database of this number",
            f"correct the number at the end of {REDIS}",
        ),
        (
            r"cluster support disabled|cluster mode is not enabled",
            "it is no node of a cluster",
            f"use redis:// instead of redis+cluster:// in {REDIS}",
        ),
        (
            r"MovedError|CROSSSLOT",
            "it is a node of a cluster",
            f"use redis+cluster:// instead of redis:// in {REDIS}",
        ),
        (
            r"CLUSTERDOWN|ClusterDownError|slots are not covered|SlotNotCovered",
            "the cluster has slots without a master",
            "start its nodes, or wait until a replica has taken over (`redis-cli cluster info`)",
        ),
        (
            r"NOPERM|no permissions to|NoPermission",
            NOT_PERMITTED,
            "add what is missing: `headstart topics acl --format redis` prints the rights of each "
            "process",
        ),
        (
            r"wrong.version.number|record layer failure",
            NO_TLS,
            f"use {{plain}} instead of {{tls}} in {REDIS}, or its port for TLS",
        ),
        (
            r"alert.certificate.expired",
            OWN_EXPIRED,
            f"renew the file of ssl_certfile in {REDIS}",
        ),
        (
            r"alert.certificate.required",
            CERTIFICATE_WANTED,
            f"name it: ssl_certfile and ssl_keyfile in {REDIS}",
        ),
        (
            r"alert.(?:unknown.ca|bad.certificate|certificate.unknown)",
            CERTIFICATE_REFUSED,
            f"use one that the server's CA has signed: ssl_certfile and ssl_keyfile in {REDIS}",
        ),
        (
            r"certificate has expired",
            EXPIRED,
            "renew it on the server (and check the clock of this machine)",
        ),
        (
            r"hostname mismatch|IP address mismatch",
            OTHER_HOST,
            f"use a host name that is in it, in {REDIS}",
        ),
        (
            r"certificate verify failed",
            UNVERIFIED,
            f"name the file of its CA, ssl_ca_certs=FILE after the ? in {REDIS}",
        ),
        (
            r"PEM lib|no certificate or crl found|key values mismatch",
            UNUSABLE_FILES,
            f"give PEM files that belong together: {', '.join(_FILES)} in {REDIS}",
        ),
    )
)
_ENDED: Final = re.compile(
    r"connection closed by server|connection reset by peer|broken pipe|EOF occurred in violation",
    re.IGNORECASE,
)
_ENDED_TLS: Final = re.compile(rf"{_ENDED.pattern}|alert", re.IGNORECASE)
_IN_PLAIN_TEXT: Final = Trouble(
    CLOSED, f"wait, or use {{tls}} instead of {{plain}} in {REDIS}", True
)
_WITHIN_TLS: Final = Trouble(
    CLOSED_TLS, f"wait, or correct ssl_certfile and ssl_keyfile in {REDIS}", refused=True
)
_OVER_TLS: Final = Trouble(SILENT, f"wait, or use {{plain}} instead of {{tls}} in {REDIS}")
_WITHOUT_PRIMARY: Final = Trouble(
    NAME_UNKNOWN, f"correct the Sentinels and the name in {REDIS}, or wait for their failover"
)


def redis_trouble(url: str, reason: BaseException) -> Trouble | None:
    """Return the problem of a connection to `url`; None: the server is probably not running."""
    if needs_encoding(url):
        return Trouble(ENCODED, f"correct {REDIS}")
    # redis.asyncio takes `redis:/...` too, and connects to its default address.
    is_url = url.lower().startswith(SCHEMES)
    if not is_url or (isinstance(reason, ValueError) and not isinstance(reason, OSError)):
        return Trouble(UNPARSABLE, f"give {REDIS_FORM} in {REDIS}")
    if "No such file" in str(reason) and (missing := _missing_file(url)):
        return Trouble(f"{missing} does not exist", f"correct it in {REDIS}", refused=True)
    if isinstance(reason, NoServerAnswers):
        return _trouble_of_servers(url, reason)
    return _trouble_of_server(url, reason)


def _trouble_of_servers(url: str, reason: NoServerAnswers) -> Trouble | None:
    """Return the problem of several servers: the one that waiting does not end."""
    known: Mapping[str, Trouble] = {
        at: trouble
        for at, error in reason.errors.items()
        if (trouble := _trouble_of_server(url, error)) is not None
    }
    refusing = {at: trouble for at, trouble in known.items() if trouble.refused}
    if isinstance(reason, PrimaryNotFound) and reason.answered and not refusing:
        return _WITHOUT_PRIMARY
    if not known:
        return None
    at, trouble = next(iter((refusing or known).items()))
    if isinstance(reason, PrimaryNotFound):
        return _of_sentinel(at, trouble)
    if len({each.what for each in known.values()}) == 1:
        return trouble
    return trouble._replace(what=f"{at}: {trouble.what}")


def _of_sentinel(at: str, trouble: Trouble) -> Trouble:
    """Return the problem of a Sentinel: it has users of its own."""
    remedy = trouble.remedy
    if trouble.what in _LOGINS:
        remedy = f"correct sentinel_username and sentinel_password after the ? in {REDIS}"
    elif trouble.what == NOT_PERMITTED:
        remedy = "let the user of sentinel_username run sentinel|masters there"
    return trouble._replace(what=f"the Sentinel {at}: {trouble.what}", remedy=remedy)


def _trouble_of_server(url: str, reason: BaseException) -> Trouble | None:
    message = f"{type(reason).__name__} {reason}"
    if _ENDED_TLS.search(message) and is_expired(_files(url).get("ssl_certfile", "")):
        return Trouble(OWN_EXPIRED, f"renew the file of ssl_certfile in {REDIS}", refused=True)
    found = next((trouble for sign, trouble in _ANSWERS if sign.search(message)), None)
    return _with_schemes(found or _without_answer(url, message), url)


def _without_answer(url: str, message: str) -> Trouble | None:
    """Return the problem of a connection that ends or hangs before anything is said."""
    url = url.lower()
    if _ENDED.search(message) and url.startswith("redis"):
        return _WITHIN_TLS if url.startswith("rediss") else _IN_PLAIN_TEXT
    return _OVER_TLS if url.startswith("rediss") and "Timeout connecting" in message else None


def _with_schemes(trouble: Trouble | None, url: str) -> Trouble | None:
    """Fill in how URLs of this form begin, in plain text and for TLS."""
    if trouble is None:
        return None
    form = url.lower().partition("://")[0].partition("+")[2]
    suffix = f"+{form}://" if form else "://"
    schemes = {"plain": f"redis{suffix}", "tls": f"rediss{suffix}"}
    return trouble._replace(remedy=trouble.remedy.format(**schemes))


def _files(url: str) -> dict[str, str]:
    """Return the files of TLS that a URL names, by their options."""
    given = parse_qs(urlsplit(url).query)
    return {option: given[option][0] for option in _FILES if option in given}


def _missing_file(url: str) -> str:
    """Return the option and path of a file that does not exist; "" if all do."""
    named = _files(url).items()
    return next((f"{key}={path}" for key, path in named if not Path(path).exists()), "")
