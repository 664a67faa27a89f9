"""The checker's own reading of the log, and the proxy that cuts connections."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

from tests.chaos.checker import _oracle, _whole_lines
from tests.chaos.echo_server import proxied_echo
from tests.chaos.proxy import HOST


def done(workflow: str, **more: Any) -> dict[str, Any]:
    return {
        "event_type": "task_complete", "workflow_type": "refund", "workflow_id": workflow,
        "task_id": "1", **more,
    }  # fmt: skip


def test_outcomes_are_counted_at_every_level() -> None:
    judged = {"context": {"domain": "d1"}, "prediction": {"was_correct": True}}
    begun = {**done("w2"), "event_type": "speculation_start"}
    events = [done("w1", data=judged, user_id="u"), begun, done("w2"), done("w2"), done("w3")]
    assert _oracle(events) == {
        "workflow_type=refund": 2,
        "workflow_type=refund/domain=d1": 1,
        "workflow_type=refund/domain=d1/user_id=u": 1,
    }


def test_the_line_that_a_kill_cut_is_no_id(tmp_path: Path) -> None:
    file = tmp_path / "0"
    file.write_text("a\nb\nc")
    assert _whole_lines(file) == ["a", "b"]


def test_a_cut_connection_is_reset() -> None:
    with (
        proxied_echo() as proxy,
        socket.create_connection((HOST, proxy.port), timeout=60) as client,
    ):
        client.sendall(b"hello")
        assert client.recv(5) == b"hello"
        assert proxy.cut() == 1
        assert _is_cut(client)


def _is_cut(client: socket.socket) -> bool:
    try:
        return not client.recv(5)
    except ConnectionResetError:
        return True
