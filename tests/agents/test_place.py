"""The id of a data directory: drawn once, whole or not at all; again if it is damaged."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from agents.instance_name import FencedInstanceId, Membership
from agents.place import FILE, draw_place_id, known_place_id, place_id
from topics.kafka.groups import GroupMember


def of(data: Path) -> Membership:
    return Membership("127.0.0.1:1", "g", "0", data)


def seen(own: Membership, client_id: str) -> GroupMember:
    return GroupMember(f"{own.static_id}-{'0' * 36}", client_id, "/10.0.0.1")


def test_it_is_drawn_once(tmp_path: Path) -> None:
    data = tmp_path / "worker"
    assert known_place_id(data) is None
    drawn = place_id(data)
    assert drawn == place_id(data) == known_place_id(data)
    assert drawn != place_id(tmp_path / "other")
    assert [each.name for each in data.iterdir()] == [FILE]


@pytest.mark.parametrize("content", [b"", b"0123", b"0123456789ABCDEF", b"\xff" * 16])
def test_a_damaged_one_is_drawn_again(tmp_path: Path, content: bytes) -> None:
    (tmp_path / FILE).write_bytes(content)
    assert known_place_id(tmp_path) is None
    assert place_id(tmp_path) == known_place_id(tmp_path)


def test_a_copy_has_the_same_one_until_another_is_drawn(tmp_path: Path) -> None:
    drawn = place_id(tmp_path / "first")
    shutil.copytree(tmp_path / "first", tmp_path / "second")
    assert place_id(tmp_path / "second") == drawn
    assert draw_place_id(tmp_path / "second") == place_id(tmp_path / "second") != drawn
    assert place_id(tmp_path / "first") == drawn


def test_a_client_id_has_host_and_place(tmp_path: Path) -> None:
    own = of(tmp_path)
    assert own.client_id.startswith("g-0.")
    assert own.client_id.endswith(f".{place_id(tmp_path)}")
    assert own.place_of(seen(own, "g-0.a.host.0123456789abcdef")) == "host a.host, 10.0.0.1"
    for another in ("rdkafka", "a.b", "g-0.", "g-01.host.0123456789abcdef"):
        assert own.place_of(seen(own, another)) == "10.0.0.1"


def test_a_worker_that_is_put_out_takes_no_member_for_its_predecessor(tmp_path: Path) -> None:
    own = of(tmp_path)
    before = own.client_id
    assert own.explained(ValueError("g")).args == ("g",)
    assert own.client_id == before
    assert "another worker with the instance name 0" in str(own.explained(FencedInstanceId()))
    assert own.client_id != before
