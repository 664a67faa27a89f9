"""A TLS context whose files are read again when they have changed.

Certificates are renewed while clients run. aiokafka keeps one context and uses it for every
connection; this one is current at each handshake.
"""

from __future__ import annotations

import logging
import os
import ssl
from typing import Any

from headstart.connections.kafka_security import KafkaSecurity, variable
from headstart.connections.secret import UnusableSecurity

log = logging.getLogger("headstart")


class ReloadingContext(ssl.SSLContext):
    """A client's context. Raises `UnusableSecurity` if a file cannot be used at the start.

    If that happens later, as while a certificate and its key are being replaced, it keeps the last
    usable files.
    """

    _security: KafkaSecurity
    _current: ssl.SSLContext

    def __new__(cls, security: KafkaSecurity) -> ReloadingContext:
        """Create the outer context; handshakes use the inner one."""
        found = super().__new__(cls, ssl.PROTOCOL_TLS_CLIENT)
        found._security = security
        found._stamps = _stamps(security)
        found._current = loaded_context(security)
        return found

    _stamps: list[tuple[int, int, int]]

    def __init__(self, security: KafkaSecurity) -> None:
        """`security`: names the files."""

    def wrap_bio(self, *args: Any, **more: Any) -> ssl.SSLObject:
        """Begin a handshake in memory, with current files; asyncio calls it."""
        return self._reloaded().wrap_bio(*args, **more)

    def wrap_socket(self, *args: Any, **more: Any) -> ssl.SSLSocket:
        """Begin a handshake on a socket, with current files."""
        return self._reloaded().wrap_socket(*args, **more)

    def _reloaded(self) -> ssl.SSLContext:
        stamps = _stamps(self._security)
        if stamps != self._stamps:
            try:
                self._current = loaded_context(self._security)
                self._stamps = stamps
            except UnusableSecurity as error:
                log.warning("the last usable certificates stay in use: %s", error)
        return self._current


def _stamps(security: KafkaSecurity) -> list[tuple[int, int, int]]:
    """Return what changes with the files; mounted secrets change their inode."""
    found = []
    for path in (security.ca, security.cert, security.key, security.key_password.file):
        try:
            status = os.stat(path) if path else None
        except OSError:
            status = None
        found.append((status.st_mtime_ns, status.st_ino, status.st_size) if status else (0, 0, 0))
    return found


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
