"""Checks and decodes control records for the threshold agent."""

from __future__ import annotations

import hmac

from headstart.events.schema import MAX_CLOCK_SKEW_MS
from processing.records.batch import Headers
from processing.records.decode import AHEAD
from topics.control.messages import SIGNATURE_HEADER, Control, decode_control, signature


def read_control(
    value: bytes, headers: Headers, timestamp_ms: int, operators_key: bytes | None
) -> Control:
    """Return a control record. `timestamp_ms`: that of its Kafka record.

    Raises `ValueError` where it is invalid, is ahead of that (it would win over every later one),
    or is not signed with `operators_key` where that is set.
    """
    if operators_key is not None:
        signed = dict(headers).get(SIGNATURE_HEADER)
        if signed is None:
            raise ValueError("the control record is not signed, and HEADSTART_OPERATORS_KEY is set")
        if not hmac.compare_digest(signed, signature(value, operators_key)):
            raise ValueError("the control record's signature is not of HEADSTART_OPERATORS_KEY")
    control = decode_control(value)
    if control.at > timestamp_ms + MAX_CLOCK_SKEW_MS:
        ahead = (control.at - timestamp_ms) / 3_600_000
        raise ValueError(f"at: is {ahead:.1f} hours {AHEAD}; give Unix milliseconds")
    return control
