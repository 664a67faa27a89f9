"""Reads from a PEM file until when a certificate is valid."""

from __future__ import annotations

import re
import ssl
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

_CERTIFICATE: Final = re.compile(
    "-----BEGIN CERTIFICATE-----.*?-----END CERTIFICATE-----", re.DOTALL
)
_SEQUENCE, _VERSION, _UTC_TIME = 0x30, 0xA0, 0x17
"""Tags of DER (X.690)."""


def is_expired(file: str) -> bool:
    """Return whether the first certificate of a PEM file has expired; False if it is unreadable."""
    try:
        return valid_until(file) < datetime.now(UTC)
    except (OSError, ValueError, IndexError):
        return False


def valid_until(file: str) -> datetime:
    """Return the end of the validity of the first certificate of a PEM file.

    Raises `OSError`, and `ValueError` or `IndexError` if there is none.
    """
    found = _CERTIFICATE.search(Path(file).read_text(encoding="ascii", errors="replace"))
    if found is None:
        raise ValueError(f"{file}: no PEM certificate")
    # RFC 5280, 4.1: version, serial number, algorithm and issuer precede the validity.
    der = ssl.PEM_cert_to_DER_cert(found[0])
    signed = _parts(_content(_content(der, _SEQUENCE), _SEQUENCE))
    if signed[0][0] == _VERSION:
        signed = signed[1:]
    (_tag, _from), (tag, until) = _parts(signed[3][1])
    text = until.decode("ascii")
    if tag == _UTC_TIME:  # two digits of the year: 1950 to 2049
        text = ("20" if text[:2] < "50" else "19") + text
    return datetime.strptime(text, "%Y%m%d%H%M%SZ").replace(tzinfo=UTC)


def _content(der: bytes, tag: int) -> bytes:
    """Return the content of the first element. Raises `ValueError` if it has another tag."""
    found, content, _end = _element(der)
    if found != tag:
        raise ValueError(f"no certificate: tag {found:#x}")
    return content


def _parts(der: bytes) -> list[tuple[int, bytes]]:
    """Return tag and content of each element."""
    found, at = [], 0
    while at < len(der):
        tag, content, end = _element(der[at:])
        found.append((tag, content))
        at += end
    return found


def _element(der: bytes) -> tuple[int, bytes, int]:
    """Return tag, content and length of the first element."""
    tag, length, begin = der[0], der[1], 2
    if length >= 0x80:  # the long form: so many bytes of length follow
        begin += length - 0x80
        length = int.from_bytes(der[2:begin], "big")
    if begin + length > len(der):
        raise ValueError("a truncated certificate")
    return tag, der[begin : begin + length], begin + length
