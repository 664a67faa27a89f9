"""Control records as the threshold agent takes them: recognised, checked, decoded."""

from __future__ import annotations

import hmac

from headstart.events.schema import MAX_CLOCK_SKEW_MS
from processing.records.batch import Headers
from processing.records.decode import AHEAD
from topics.control.messages import SIGNATURE_HEADER, Control, decode_control, signature


def read_control(
    value: bytes, headers: Headers, timestamp_ms: int, operators_key: bytes | None
) -> Control:
    """Return a control record, `timestamp_ms` being that of its Kafka record.

    Raises `ValueError` where it is none, is ahead of that (it would hold against every later
    one), or where a key is set and it is not signed with it.
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
