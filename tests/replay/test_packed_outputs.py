"""An output is compressed by its ending, and can be read again."""

from __future__ import annotations

import gzip
import json
import sys
from pathlib import Path
from typing import Any

import cramjam
import pytest

from cli.main import main
from headstart.events.schema import new_id
from replay.files.input import read_input
from replay.files.output import CannotWrite, check_output, output_file, write_file
from replay.log.snapshots import Snapshot, read_snapshot, write_snapshot
from replay.rebuild.learned_state_file import read_learned

AT = 1_760_000_000_000

CONTENT = b"".join(b"%d some text\n" % number for number in range(600_000))
SPAN = {"run_type": "tool", "name": "a", "start_time": "2026-01-01"}
LEARNED = {"format": "headstart-learned", "version": 1, "levels": ["domain"], "contexts": 0}
SPANS = "".join(json.dumps({**SPAN, "trace_id": f"t{n}", "id": f"r{n}"}) + "\n" for n in range(60))


@pytest.mark.parametrize(
    ("name", "magic"),
    [("x.gz", b"\x1f\x8b"), ("x.jsonl.GZ", b"\x1f\x8b"), ("x.zst", b"\x28\xb5\x2f\xfd"),
     ("x.zstd", b"\x28\xb5\x2f\xfd"), ("x.jsonl", b"0 some")],
)  # fmt: skip
def test_the_ending_selects_the_compression(name: str, magic: bytes, tmp_path: Path) -> None:
    file = tmp_path / name
    with output_file(file) as written:
        written.write(CONTENT[:100])
        written.writelines([CONTENT[100:200], CONTENT[200:]])
    assert file.read_bytes().startswith(magic)
    assert read_input(file) == CONTENT
    write_file(file, "text")
    assert read_input(file) == b"text"


@pytest.mark.parametrize("name", ["x.bz2", "x.xz", "x.zip", "x.jsonl.lz4"])
def test_another_compression_is_refused(name: str, tmp_path: Path) -> None:
    for refuse in (check_output, lambda file: write_file(file, b"x")):
        with pytest.raises(CannotWrite, match=r"use \.gz or \.zst"):
            refuse(tmp_path / name)
    assert not list(tmp_path.iterdir())


def test_a_format_of_its_own_is_not_packed_twice(tmp_path: Path) -> None:
    snapshot = Snapshot(3, "hops", {0: {b"k": b"v"}})
    for name in ("nightly.gz", "nightly"):
        write_snapshot(tmp_path / name, snapshot)
        assert b'"learner":"hops"' in gzip.decompress((tmp_path / name).read_bytes())
        assert read_snapshot(tmp_path / name) == snapshot
    with pytest.raises(CannotWrite, match=r"is gzip; its name must end in \.gz"):
        write_snapshot(tmp_path / "nightly.zst", snapshot)


def test_learned_state_is_read_from_a_packed_export(tmp_path: Path) -> None:
    for name in ("learned.jsonl.gz", "learned.jsonl.zst"):
        write_file(tmp_path / name, json.dumps(LEARNED) + "\n")
        assert read_learned(tmp_path / name)[0].contexts == 0


def event(number: int) -> dict[str, Any]:
    return {
        "id": new_id(), "event_type": "task_complete", "tenant": "t", "workflow_type": "refund",
        "workflow_id": f"w{number}", "timestamp": 1_760_000_000_000 + number, "confidence": 0.9,
        "data": {"prediction": {"was_correct": True}},
    }  # fmt: skip


def command(monkeypatch: pytest.MonkeyPatch, *words: Any) -> int:
    monkeypatch.setattr(sys, "argv", ["headstart", *map(str, words)])
    try:
        main()
    except SystemExit as ended:
        return int(ended.code or 0)
    return 0


@pytest.mark.parametrize("ending", ["", ".gz", ".zst"])
def test_files_of_import_and_export_are_read_again(
    ending: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "spans.jsonl").write_text(SPANS)
    runs = f"runs.jsonl{ending}"
    assert command(monkeypatch, "import", "langsmith", "spans.jsonl", "--out", runs) == 0
    assert command(monkeypatch, "import", "runs", runs, "--out", "again.jsonl") == 0
    assert len((tmp_path / "again.jsonl").read_bytes().splitlines()) == 60
    events = f"events.jsonl{ending}"
    write_file(events, "".join(json.dumps(event(number)) + "\n" for number in range(20)))
    assert command(monkeypatch, "export", f"log{ending}", "--source", events) == (ending == ".gz")
    if ending == ".gz":
        assert "the file is zstd; its name must end in .zst" in capfd.readouterr().err
        return
    assert cramjam.zstd.decompress((tmp_path / f"log{ending}").read_bytes())
    again = ("export", "log2.zst", "--source", f"log{ending}")
    assert command(monkeypatch, *again) == 0


def test_runs_without_times_have_no_first_and_last_and_bins_have_a_mean(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    steps = [{"tool": t, "called_at": None, "returned_at": None, "error": False} for t in "abc"]
    run = {"source": "s", "domain": "retail", "agent_model": "m", "trial": None, "steps": steps}
    lines = [json.dumps({**run, "task_id": str(number)}) for number in range(120)]
    (tmp_path / "runs.jsonl").write_text("\n".join(lines))
    words = ("backtest", "--source", "runs.jsonl", "fixed", "--processes", "1", "--json")
    assert command(monkeypatch, *words) == 0
    found = json.loads(capfd.readouterr().out.splitlines()[-1])
    assert (found["first"], found["last"]) == (None, None)
    assert found["policies"]["fixed"]["modes"] is None, "not counted, so not 0"
    for place, each in enumerate(found["bins"]):
        if each["count"]:
            assert place / 100 <= each["confidence"] <= (place + 1) / 100
        else:
            assert each["confidence"] is None


def test_outcomes_in_any_order_begin_with_the_earliest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    times = [AT + 5_000, AT + 9_000, AT, AT + 7_000]
    outcome = {"context": {"workflow_type": "w"}, "confidence": 0.8, "correct": True}
    lines = [json.dumps({**outcome, "at": at}) for at in times]
    (tmp_path / "o.jsonl").write_text("\n".join(lines))
    words = ("backtest", "--outcomes", "o.jsonl", "fixed", "--processes", "1", "--json")
    assert command(monkeypatch, *words) == 0
    found = json.loads(capfd.readouterr().out.splitlines()[-1])
    assert (found["first"], found["last"]) == (AT, AT + 9_000)
    assert sum(each["outcomes"] for each in found["policies"]["fixed"]["modes"].values()) == 4


def test_runs_outside_the_range_are_named_as_such(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    steps = [{"tool": t, "called_at": None, "returned_at": None, "error": False} for t in "abc"]
    run = {"source": "s", "domain": "retail", "agent_model": "m", "started_at": AT, "steps": steps}
    lines = [json.dumps({**run, "task_id": str(number)}) for number in range(3)]
    (tmp_path / "runs.jsonl").write_text("\n".join(lines))
    words = ("backtest", "--source", "runs.jsonl", "fixed", "--processes", "1")
    assert command(monkeypatch, *words, "--since", "2027-01-01") == 1
    message = capfd.readouterr().err
    assert "3 runs, all outside the range; --since takes 2h, 3d or a date" in message
    assert "events" not in message
