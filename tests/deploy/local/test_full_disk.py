"""The remedy of a failed start fits its cause, and never is to remove data."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from deploy.local import StackError
from deploy.local.child_process import AT_ONCE
from deploy.local.process_group import ProcessGroup

FREE_SPACE = "is full: free space, and start again"
ON_SMALL_DISK = """
import subprocess, sys
from pathlib import Path
from deploy.local import Stack, StackConfig, StackError
disk = Path(sys.argv[1])
subprocess.run(["mount", "-t", "tmpfs", "-o", "size=24m", "tmpfs", disk], check=True)
former = disk / "data" / "redis" / "former"
former.parent.mkdir(parents=True)
former.write_text("kept")
try:
    Stack(StackConfig(data=disk / "data")).start()
except StackError as error:
    print(error)
assert former.read_text() == "kept"
"""
NEW_MOUNTS = ["unshare", "--mount"]


def may_mount() -> bool:
    # Not as root of a user namespace: Postgres needs a second account there.
    if os.geteuid() != 0:
        return False
    try:
        probe = subprocess.run([*NEW_MOUNTS, "true"], capture_output=True, check=False)
    except OSError:
        return False
    return probe.returncode == 0


@pytest.mark.skipif(not may_mount(), reason="needs root and mount namespaces (Linux)")
def test_initdb_on_a_full_disk_asks_for_free_space(tmp_path: Path) -> None:
    command = [*NEW_MOUNTS, sys.executable, "-c", ON_SMALL_DISK, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    message = done.stdout.splitlines()[0]
    assert message.startswith("postgres ended with exit code 1; the disk of ")
    assert FREE_SPACE in message
    assert "remove" not in message


@pytest.mark.parametrize(
    ("output", "remedy"),
    [
        ('FATAL: could not write to file "pg_wal/0": No space left on device', FREE_SPACE),
        ("initdb: error: could not create directory: Disk quota exceeded", FREE_SPACE),
        ("initdb: error: invalid locale name", "see its log, and start again"),
    ],
)
def test_a_failed_preparation_names_the_remedy(tmp_path: Path, output: str, remedy: str) -> None:
    group = ProcessGroup(tmp_path)
    try:
        group.claim("postgres")
        child = group.spawn("postgres", ["sh", "-c", f"echo '{output}'; exit 1"], AT_ONCE)
        with pytest.raises(StackError) as caught:
            child.finish(60.0)
    finally:
        group.close()
    first, *log = str(caught.value).splitlines()
    assert first.startswith("postgres ended with exit code 1; ")
    assert remedy in first
    assert "remove" not in first
    assert log == [f"    {output}"]
