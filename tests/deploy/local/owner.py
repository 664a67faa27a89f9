"""A process for the tests to kill: owns a stack, or a child on the fallback lifeline."""

import json
import os
import signal
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

from deploy.local import Addresses, Stack, StackConfig
from deploy.local.parent_death import ParentWatcher


def main(how: str, data: Path) -> None:
    if how == "watcher":
        lifeline = ParentWatcher()
        kept = subprocess.Popen(["sleep", "600"])
        ended = subprocess.Popen(["sleep", "600"])
        for child in (kept, ended):
            lifeline.follow(child.pid, signal.SIGTERM)
        lifeline.release(kept.pid)
        report(Addresses("", "", ""), {"ended": ended.pid, "kept": kept.pid})
    else:
        stack = Stack(StackConfig(data=data))
        addresses = stack.start()
        pids = stack.pids
        if how == "forking":
            # Such a child (multiprocessing's, say) survives and must not keep the directory.
            pids["forked"] = fork_sleeper()
        report(addresses, pids)
    sys.stdin.read()


def fork_sleeper() -> int:
    pid = os.fork()
    if pid == 0:
        signal.pause()
    return pid


def report(addresses: Addresses, pids: dict[str, int]) -> None:
    print(json.dumps({"addresses": asdict(addresses), "pids": pids}), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
