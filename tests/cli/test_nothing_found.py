"""A selection that finds nothing ends with exit code 1, and names the filters."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import typer

from cli.support.output import require_found
from tests.processes import Ended

HEADER = {"format": "headstart-learned", "version": 1, "levels": ["domain", "user_id"]}
LINE = {
    "tenant": "acme", "path": "workflow_type=refund", "learner": "hops", "learner_version": 1,
    "state": [0.5], "outcomes": 1, "speculated": 0, "hits": 0,
}  # fmt: skip


def learned(file: Path, *lines: dict[str, Any]) -> str:
    entries = ({**HEADER, "contexts": len(lines)}, *lines)
    file.write_text("".join(json.dumps(each) + "\n" for each in entries))
    return str(file)


def test_an_import_of_no_context_fails(run: Callable[..., Ended], tmp_path: Path) -> None:
    file = learned(tmp_path / "learned.jsonl", LINE)
    ended = run("thresholds", "import", file, "--tenant", "nobody", "--yes", "--json")
    assert ended.returncode == 1
    found = json.loads(ended.stdout)
    assert (found["contexts"], found["sent"], found["tenant"]) == (0, False, "nobody")
    assert (
        f"error: {file} holds no context of tenant 'nobody'; it has those of acme" in ended.stderr
    )
    none = learned(tmp_path / "none.jsonl")
    ended = run("thresholds", "import", none, "--yes")
    assert (ended.returncode, ended.stdout) == (1, "")
    assert ended.stderr == f"error: {none} holds no contexts; nothing was sent\n"


def test_an_empty_selection_is_reported(capsys: pytest.CaptureFixture[str]) -> None:
    require_found(1, "context", tenant="acme")
    require_found(0, "context", tenant=None, since="")
    assert capsys.readouterr().err == ""
    with pytest.raises(typer.Exit) as ended:
        require_found(0, "context", tenant="nobody", workflow_type="refund")
    assert ended.value.exit_code == 1
    with pytest.raises(typer.Exit):
        require_found(0, "dead letter", always=True)
    assert capsys.readouterr().err.splitlines() == [
        "error: no context matches --tenant nobody --workflow-type refund",
        "error: there is no dead letter",
    ]


TAKES_FOLDERS = ("import", "otlp")
NAMES = ("none", "folder", "file/inside", "loop", "closed")
READING = (
    ("thresholds", "import", "IN"), ("emit", "IN"), ("backtest", "--source", "IN", "fixed"),
    ("replay", "--source", "IN"), ("export", "out.zst", "--source", "IN"),
    ("import", "otlp", "IN", "--out", "out.jsonl"), ("verify", "--snapshot", "IN"),
    ("dead-letters", "replay", "0:1", "--file", "IN"), ("demo", "--traces", "IN"),
)  # fmt: skip


@pytest.mark.parametrize(
    ("words", "name"),
    [
        *((words, name) for words in READING for name in NAMES[:2] if words[:2] != TAKES_FOLDERS),
        *((READING[2], name) for name in NAMES[2:]),
        (READING[5], NAMES[0]),
    ],
)
def test_the_reason_of_an_unreadable_input_is_reported(
    words: tuple[str, ...], name: str, run: Callable[..., Ended], tmp_path: Path
) -> None:
    if name == "closed" and os.geteuid() == 0:
        pytest.skip("root may read everything")
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").write_text("")
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "closed").touch(0o000)
    ended = run(*(name if each == "IN" else each for each in words))
    assert (ended.returncode, ended.stdout) == (1, "")
    why = {
        "none": "no such file", "folder": "is a ", "file/inside": "not a directory",
        "loop": "too many levels of symbolic links", "closed": "permission denied",
    }[name]  # fmt: skip
    assert why in ended.stderr
    assert ("folder" in ended.stderr) == (name == "folder")
    assert name in ended.stderr
    assert "Errno" not in ended.stderr
