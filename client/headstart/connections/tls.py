"""A TLS context whose files are read again when they have changed.

Certificates are renewed while clients run. aiokafka keeps one context and uses it for every
connection; this one is current at each handshake. The last usable files are those of the process: a
worker makes clients while it runs, and half-replaced files must not end it.
"""

from __future__ import annotations

import logging
import os
import ssl
from typing import Any, NamedTuple

from headstart.connections.kafka_security import KafkaSecurity, variable
from headstart.connections.secret import Secret, UnusableSecurity

log = logging.getLogger("headstart")

_Stamp = tuple[int, int, int]
_Files = tuple[str, str, str, Secret, bool]
"""CA, certificate, key, its password, and whether host names are checked."""


class _Loaded(NamedTuple):
    """A usable context, and what its files looked like when it was loaded."""

    context: ssl.SSLContext
    stamps: tuple[_Stamp, ...]


class ReloadingContext(ssl.SSLContext):
    """A client's context. Raises `UnusableSecurity` if this process never could use its files.

    If they cannot be used later, as while a certificate and its key are being replaced, the last
    usable ones stay in use, also for clients that are made then.
    """

    _security: KafkaSecurity

    def __new__(cls, security: KafkaSecurity) -> ReloadingContext:
        """Create the outer context; handshakes use the one of the files."""
        found = super().__new__(cls, ssl.PROTOCOL_TLS_CLIENT)
        found._security = security
        current_context(security)
        return found

    def __init__(self, security: KafkaSecurity) -> None:
        """`security`: names the files."""

    def wrap_bio(self, *args: Any, **more: Any) -> ssl.SSLObject:
        """Begin a handshake in memory, with current files; asyncio calls it."""
        return current_context(self._security).wrap_bio(*args, **more)

    def wrap_socket(self, *args: Any, **more: Any) -> ssl.SSLSocket:
        """Begin a handshake on a socket, with current files."""
        return current_context(self._security).wrap_socket(*args, **more)


_loaded: dict[_Files, _Loaded] = {}
_unusable: dict[_Files, tuple[_Stamp, ...]] = {}
"""What files looked like when a warning said that they cannot be used."""


def current_context(security: KafkaSecurity) -> ssl.SSLContext:
    """Return the context of the files, loaded again if they have changed; one for all clients.

    While they cannot be used, that is the last one that could be, with a warning. Raises
    `UnusableSecurity` if this process has none.
    """
    files = (security.ca, security.cert, security.key, security.key_password)
    key = (*files, security.check_hostname)
    stamps = tuple(map(_stamp, (*files[:3], security.key_password.file)))
    last = _loaded.get(key)
    if last is not None and last.stamps == stamps:
        return last.context
    try:
        found = loaded_context(security)
    except UnusableSecurity as error:
        if last is None:
            raise
        if _unusable.get(key) != stamps:
            log.warning("the last usable certificates stay in use: %s", error)
        _unusable[key] = stamps
        return last.context
    _loaded[key] = _Loaded(found, stamps)
    return found


def _stamp(path: str) -> _Stamp:
    """Return what changes with a file; mounted secrets change their inode."""
    try:
        status = os.stat(path) if path else None
    except OSError:
        status = None
    return (status.st_mtime_ns, status.st_ino, status.st_size) if status else (0, 0, 0)


def loaded_context(security: KafkaSecurity) -> ssl.SSLContext:
    """Return a context of the files as they are now. Raises `UnusableSecurity`."""
    context = ssl.create_default_context()
    if security.ca:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        _load(context.load_verify_locations, "ssl_ca", security.ca, cafile=security.ca)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.check_hostname = security.check_hostname
    if security.cert:
        # Never None, with which OpenSSL would ask for the password at the terminal.
        password = security.key_password.read() if security.key_password else ""
        _load(
            context.load_cert_chain,
            "ssl_cert",
            security.cert,
            certfile=security.cert,
            keyfile=security.key or None,
            password=lambda: password,
        )
    return context


def _load(load: Any, option: str, path: str, **given: Any) -> None:
    try:
        load(**given)
    except FileNotFoundError:
        missing = next((each for each in given.values() if _is_missing(each)), path)
        raise UnusableSecurity(f"{variable(option)}: {missing} does not exist") from None
    except ssl.SSLError as error:
        reason = str(error.reason or error)
        if "KEY_VALUES_MISMATCH" in reason:
            why = "the key is not that of the certificate"
        elif "BAD_DECRYPT" in reason or "BAD_PASSWORD" in reason:
            why = f"the key needs its password: {variable('ssl_key_password')}_FILE"
        else:
            why = "it holds no PEM certificate" if option == "ssl_ca" else "no PEM with its key"
        raise UnusableSecurity(f"{variable(option)}: {path}: {why}") from None
    except (OSError, ValueError) as error:
        raise UnusableSecurity(f"{variable(option)}: {path} cannot be read: {error}") from None


def _is_missing(path: object) -> bool:
    return isinstance(path, str) and not os.path.exists(path)
