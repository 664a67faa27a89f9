"""The arguments of the demo's executors hold no password: process lists show them."""

from __future__ import annotations

import json
from pathlib import Path

from demo.run import DemoConfig, _spawn
from deploy.local import Addresses
from deploy.local.process_group import ProcessGroup


def test_an_executor_gets_its_addresses_as_variables(tmp_path: Path) -> None:
    addresses = Addresses("127.0.0.1:1", "unused", "redis://ann:canary-secret@127.0.0.1:1/0")
    group = ProcessGroup(tmp_path)
    try:
        child = _spawn(group, DemoConfig(tmp_path), addresses, "acme", 0)
        arguments = Path(f"/proc/{child.pid}/cmdline").read_bytes().decode().split("\0")
        variables = Path(f"/proc/{child.pid}/environ").read_bytes().decode().split("\0")
    finally:
        group.close()
    assert json.loads(arguments[-2])["tenant"] == "acme"
    assert "canary" not in " ".join(arguments)
    assert f"HEADSTART_REDIS={addresses.redis}" in variables
    assert f"HEADSTART_KAFKA={addresses.kafka}" in variables
