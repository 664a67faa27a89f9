"""Notices of overrides follow from the log of commands, once each; and their records."""

from __future__ import annotations

from typing import Any

import pytest

from topics.commands.messages import (
    Begin,
    ModeCommand,
    ThresholdOverride,
    command_key,
    encode_command,
)
from topics.notices.messages import (
    OVERRIDES_FOR_MS,
    Notice,
    OverrideNotices,
    decode_notice,
    downweight_for,
    notice_id,
    notice_record,
)

NOW = 1_760_000_000_000


def override(until: int | None = None, at: int = NOW, **fields: Any) -> ThresholdOverride:
    given = {"tenant": "acme", "workflow_type": "refund", "speculate": 0.9, "by": "me", **fields}
    return ThresholdOverride(until=until, at=at, **given)


KEY = command_key(override())


class Log:
    """A log of commands, and its follower."""

    def __init__(self, *, begun: bool = True) -> None:
        self.follower, self.offset = OverrideNotices(), 0
        if begun:
            self.add(Begin(number=5))

    def add(self, command: Any, at: int = NOW) -> None:
        key = command_key(command)
        self.raw(key, encode_command(command), at)

    def raw(self, key: bytes | None, value: bytes | None, at: int = NOW) -> None:
        self.follower.apply(key, value, self.offset, at)
        self.offset += 1

    def found_at(self, now: int = NOW) -> list[tuple[str, int]]:
        return [(each.kind, each.at) for each in self.follower.due(now)]


def test_an_override_gives_notices_when_set_and_expired() -> None:
    log = Log()
    log.add(override(until=NOW + 10, reason="slow"))
    assert log.found_at(NOW + 9) == [("override_set", NOW)]
    assert log.found_at(NOW + 10) == [("override_set", NOW), ("override_expired", NOW + 10)]
    assert log.found_at(NOW + 99) == log.found_at(NOW + 10)
    notice = log.follower.due(NOW)[0]
    assert (notice.tenant, notice.workflow_type, notice.path) == ("acme", "refund", "")
    assert notice.evidence == {
        "tool": None, "speculate": 0.9, "suggest": None, "until": NOW + 10, "by": "me",
        "reason": "slow",
    }  # fmt: skip


def test_every_override_gives_a_notice_even_if_replaced_at_once() -> None:
    log = Log()
    log.add(override(until=NOW + 10))
    log.add(override(at=NOW + 1))
    assert log.found_at(NOW + 20) == [("override_set", NOW), ("override_set", NOW + 1)]


def test_an_override_unset_before_its_end_does_not_expire() -> None:
    early, late = Log(), Log()
    for log, at in ((early, NOW + 9), (late, NOW + 10)):
        log.add(override(until=NOW + 10))
        log.raw(KEY, None, at)
    assert early.found_at(NOW + 99) == [("override_set", NOW)]
    assert late.found_at(NOW + 99) == [("override_set", NOW), ("override_expired", NOW + 10)]


def test_a_new_log_repeats_no_notice() -> None:
    first, second = Log(), Log(begun=False)
    first.add(override(until=NOW + 10))
    second.add(override(until=NOW + 10, at=NOW + 5))  # as it was remembered
    second.add(Begin(number=6))
    assert second.found_at(NOW + 9) == []
    assert second.follower.due(NOW + 10) == first.follower.due(NOW + 10)[1:]


def test_two_followers_yield_the_same() -> None:
    one, other = Log(), Log()
    for log in (one, other):
        log.add(override(until=NOW + 10))
        log.add(override(tool="pay"))
    assert one.follower.due(NOW + 50) == other.follower.due(NOW + 50)
    assert len({each.id for each in one.follower.due(NOW + 50)}) == 3


def test_notices_that_no_database_can_store_are_skipped() -> None:
    log = Log()
    log.add(override(at=2**63))
    log.add(override(until=10**30))
    log.add(override(until=-5))
    assert log.found_at() == []
    log.add(override(reason="a\0b", by="\0"))
    (notice,) = log.follower.due(NOW)
    assert (notice.evidence["reason"], notice.evidence["by"]) == ("a\ufffdb", "\ufffd")


def test_old_and_invalid_overrides_give_no_notice() -> None:
    log = Log()
    log.add(override(until=NOW + 10))
    log.add(ModeCommand(mode="off", at=NOW))
    log.raw(b"nonsense", b"nonsense")
    log.raw(b"nonsense", encode_command(override()))
    log.raw(None, encode_command(override()))
    assert log.found_at(NOW + 20) == [("override_set", NOW), ("override_expired", NOW + 10)]
    assert log.found_at(NOW + 5 + OVERRIDES_FOR_MS) == [("override_expired", NOW + 10)]
    assert log.found_at(NOW + 10 + OVERRIDES_FOR_MS) == []


def notice(**fields: Any) -> Notice:
    given = {
        "id": notice_id("anomaly", "x", 1), "kind": "anomaly", "tenant": "acme", "at": NOW,
        "workflow_type": "refund", "path": "workflow_type=refund/user_id=ann",
        "evidence": {"what": "user", "every": 9, "until": NOW + 5, "share": 0.9}, **fields,
    }  # fmt: skip
    return Notice(**given)


def test_a_record_comes_back_and_goes_where_its_events_are() -> None:
    record = notice_record(notice(), 3)
    assert (record.partition, record.key) == (3, b"acme\x1fworkflow_type=refund/user_id=ann")
    assert decode_notice(record.value or b"") == notice()


@pytest.mark.parametrize("raw", [b"", b"{}", b"[]", b"\xff", b"[" * 99_999, b'{"id": "x"}'])
def test_invalid_notices_are_rejected(raw: bytes) -> None:
    with pytest.raises(ValueError, match="not a notice"):
        decode_notice(raw)


def test_only_a_flooding_user_is_downweighted() -> None:
    found = downweight_for(notice())
    assert found is not None
    assert (found.id, found.at, found.every, found.until) == (notice().id, NOW, 9, NOW + 5)
    assert downweight_for(notice(kind="drift")) is None
    assert downweight_for(notice(evidence={"what": "rate"})) is None
