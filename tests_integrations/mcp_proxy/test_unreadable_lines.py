"""Lines that are JSON, but that the SDK's parser refuses."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

SERVER = """
import json, sys
for line in sys.stdin:
    asked = json.loads(line)
    if "id" in asked:
        text = sys.argv[1].replace("ID", json.dumps(asked["id"])).replace("GOT", line.strip())
        print(text, flush=True)
"""
ANSWER = '{"jsonrpc": "2.0", "id": ID, "result": {"text": VALUE}}'


def answer_to(request: str, value: str, tmp_path: Path) -> Any:
    """Return what a client gets through the proxy from a server that answers with a value."""
    answer = ANSWER.replace("VALUE", value)
    command = [sys.executable, "-m", "headstart.integrations.mcp_proxy", "--workflow-type", "w",
               "--", sys.executable, "-c", SERVER, answer]  # fmt: skip
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        env={**os.environ, "HEADSTART_SPOOL": str(tmp_path / "spool"), "HEADSTART_SHIPPER": "none"},
    ) as proxy:  # fmt: skip
        assert proxy.stdin is not None
        assert proxy.stdout is not None
        proxy.stdin.write(request + "\n")
        proxy.stdin.flush()
        found = json.loads(proxy.stdout.readline())
        proxy.stdin.close()
        proxy.wait(60)
    return found


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (r'"cut \ud83d"', "cut \ufffd"),
        ("[" * 250 + "]" * 250, json.loads("[" * 250 + "]" * 250)),
        ("9" * 5_000, None),
    ],
    ids=["half a surrogate pair", "deep nesting", "5,000 digits"],
)
def test_an_answer_reaches_the_client(value: str, text: object, tmp_path: Path) -> None:
    found = answer_to('{"jsonrpc": "2.0", "id": 7, "method": "any/method"}', value, tmp_path)
    assert found["id"] == 7
    if text is None:
        assert found["error"]["message"] == "the server's answer cannot be read"
    else:
        assert found["result"]["text"] == text


def test_a_request_reaches_the_server(tmp_path: Path) -> None:
    request = r'{"jsonrpc": "2.0", "id": "a", "method": "any/method", "params": {"q": "\ud83d"}}'
    found = answer_to(request, "GOT", tmp_path)
    assert found["result"]["text"]["params"] == {"q": "\ufffd"}
