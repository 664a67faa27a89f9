"""`headstart memory keys` as it is called: what it prints, its exit codes, and what it changes."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from cli.main import main
from sinks.postgres.encryption.master_keys import VARIABLE, parse_master_keys
from tests.memory.complaints.purging import assemble, found_in
from tests.memory.stored_runs import event, rows, store
from tests.sinks.encryption.keys import NEW, OLD, line

pytestmark = pytest.mark.integration

CANARY = "canary-c0de"
FILE = f"{VARIABLE}_FILE"


class Ended(NamedTuple):
    """How a command has ended."""

    code: int
    out: str
    err: str

    @property
    def said(self) -> dict[str, object]:
        """The JSON object that ends its output."""
        found: dict[str, object] = json.loads(self.out.splitlines()[-1])
        return found


class Commands:
    """Runs commands in this process on one database, with a file of keys."""

    def __init__(
        self,
        dsn: str,
        folder: Path,
        patching: pytest.MonkeyPatch,
        capfd: pytest.CaptureFixture[str],
    ) -> None:
        self.dsn, self._folder, self._patching, self._capfd = dsn, folder, patching, capfd
        self._patching.chdir(folder)

    def give(self, *lines: str) -> None:
        """Write the file of keys, and name it in the environment."""
        file = self._folder / "encryption.key"
        file.write_text("\n".join(lines) + "\n")
        file.chmod(0o600)
        self._patching.setenv(FILE, str(file))

    def run(self, *arguments: str) -> Ended:
        self._patching.setattr(sys, "argv", ["headstart", "memory", *arguments])
        self._capfd.readouterr()
        with pytest.raises(SystemExit) as ended:
            main()
        return Ended(int(ended.value.code or 0), *self._capfd.readouterr())

    def keys(self, *arguments: str) -> Ended:
        return self.run("keys", *arguments, "--postgres", self.dsn)


@pytest.fixture
def commands(
    migrated: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> Commands:
    found = Commands(migrated, tmp_path, monkeypatch, capfd)
    found.give(OLD)
    said = {"query": CANARY, "response": f"done: {CANARY}", "outcome": "success"}
    whom = {"user_id": "u1"}

    async def fill() -> None:
        for tenant in ("acme", "rival"):
            call = event(
                tenant, "w1", 0, tool_id="find", data={"arguments": {"of": CANARY}}, **whom
            )
            await store(
                migrated, [call, event(tenant, "w1", 1, "workflow_complete", data=said, **whom)]
            )
        await assemble(migrated)

    asyncio.run(fill())
    return found


def test_new_prints_a_key_that_can_be_given(commands: Commands) -> None:
    first, second = commands.run("keys", "new", "k9"), commands.run("keys", "new", "k9")
    assert (first.code, second.code) == (0, 0)
    assert first.out != second.out
    assert parse_master_keys(first.out).newest == "k9"
    refused = commands.run("keys", "new", "no spaces")
    assert (refused.code, refused.out) == (1, "")
    assert "letters, digits, dots" in refused.err


def test_list_shows_keys_of_tenants(commands: Commands) -> None:
    shown = commands.keys("list")
    assert shown.code == 0
    printed = shown.out + shown.err
    assert [text for text in ("acme", "rival", "k1") if text not in printed] == []
    assert OLD.partition(":")[2] not in printed
    (key,) = commands.keys("list", "--tenant", "acme", "--json").said["keys"]  # type: ignore[misc]
    assert (key["tenant"], key["number"], key["master"], key["shredded"]) == ("acme", 1, "k1", None)
    nothing = commands.keys("list", "--tenant", "nobody", "--json")
    assert (nothing.code, nothing.said) == (1, {"keys": []})
    assert "nobody" in nothing.err


def test_rotate_wraps_all_keys_again(commands: Commands) -> None:
    commands.give(NEW, OLD)
    done = commands.keys("rotate", "--json")
    assert (done.code, done.said) == (0, {"rotated": 2, "master": "k2", "rewritten": True})
    assert commands.keys("rotate", "--json").said["rotated"] == 0
    commands.give(NEW)
    shown = commands.run("show", "w1", "--tenant", "acme", "--json", "--postgres", commands.dsn)
    assert (shown.code, CANARY in shown.out) == (0, True)


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ((NEW,), "encrypted with the key 'k1', which is not among the given ones (k2)"),
        ((NEW, line("k1", 9)), "the key 'k1' is not the one"),
        (("k1:short",), "'k1' is not the base64 of 32 bytes"),
    ],
)
def test_a_wrong_key_is_named_and_changes_nothing(
    commands: Commands, lines: tuple[str, ...], message: str
) -> None:
    before = rows(commands.dsn, "SELECT * FROM tenant_keys ORDER BY 1")
    commands.give(*lines)
    of = ("--tenant", "acme", "--postgres", commands.dsn)
    for ended in (
        commands.keys("rotate"), commands.run("show", "w1", *of),
        commands.run("list", "--user", "u1", *of), commands.run("export", "-", *of),
        commands.run("export", "-", "--user", "u1", *of),
    ):  # fmt: skip
        assert ended.code == 1, ended
        assert message in ended.err
        assert "Traceback" not in ended.err
        assert CANARY not in ended.out + ended.err
    assert rows(commands.dsn, "SELECT * FROM tenant_keys ORDER BY 1") == before


def test_a_missing_file_of_keys_is_named(
    commands: Commands, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(FILE, "/no/such/encryption.key")
    ended = commands.keys("rotate")
    assert ended.code == 77
    assert "/no/such/encryption.key" in ended.err
    monkeypatch.delenv(FILE)
    ended = commands.keys("rotate")
    assert ended.code == 1
    assert f"set {FILE}" in ended.err or "not among the given ones (none)" in ended.err


def test_shred_ends_one_tenants_texts_for_every_command(commands: Commands) -> None:
    assert found_in(commands.dsn, CANARY) == []
    refused = commands.keys("shred", "--tenant", "acme")
    assert refused.code != 0, "it asks first, and nothing answers"
    done = commands.keys("shred", "--tenant", "acme", "--yes", "--json")
    assert done.code == 0
    assert done.said == {"shredded": 1, "episodes": 1, "rewritten": True}
    for tenant, found in (("acme", False), ("rival", True)):
        of = ("--tenant", tenant, "--postgres", commands.dsn)
        for arguments in (
            ("show", "w1", "--json"), ("list", "--user", "u1", "--json"), ("export", "-"),
            ("export", "-", "--user", "u1"), ("query", "--workflow-id", "w1", "--json"),
        ):  # fmt: skip
            ended = commands.run(*arguments, *of)
            assert (ended.code, CANARY in ended.out + ended.err) == (0, found), (arguments, ended)
    again = commands.keys("shred", "--tenant", "acme", "--yes", "--json")
    assert (again.code, again.said["shredded"]) == (0, 0)
    nothing = commands.keys("shred", "--tenant", "nobody", "--yes")
    assert nothing.code == 1
    assert "nobody" in nothing.err
    listed = commands.keys("list", "--tenant", "acme", "--json").said["keys"]
    assert listed[0]["shredded"] is not None  # type: ignore[index]
