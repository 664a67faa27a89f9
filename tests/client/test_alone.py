"""The client's wheel on its own: small, typed, and free of the service."""

from __future__ import annotations

import shutil
import subprocess
import sys
import zipfile
from email.parser import Parser
from pathlib import Path

import pytest

CLIENT = Path(__file__).parents[2] / "client"
FOREIGN = ("faust", "mode", "psycopg", "msgspec", "rocksdict", "structlog", "typer", "pydantic",
           "topics", "learners", "processing", "sinks", "cli", "settings", "demo")  # fmt: skip
SLOW = {"aiokafka", "redis", "asyncio", "subprocess", "ssl", "opentelemetry", "prometheus_client"}
"""What `import headstart` must not wait for."""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    source = folder / "client"  # setuptools leaves its build folder beside the source
    shutil.copytree(CLIENT, source, ignore=shutil.ignore_patterns("build", "*.egg-info"))
    subprocess.run(
        [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation",
         "--no-index", "--disable-pip-version-check", "--wheel-dir", folder, source],
        check=True,
        timeout=120,
    )  # fmt: skip
    return next(folder.glob("*.whl"))


def test_the_wheel_holds_the_client_and_nothing_else(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = {name for name in archive.namelist() if ".dist-info/" not in name}
    modules = {path.relative_to(CLIENT).as_posix() for path in CLIENT.rglob("headstart/**/*.py")}
    assert names == modules | {"headstart/py.typed"}
    assert "headstart/emitting/emitter.py" in modules


def test_the_wheel_needs_three_distributions(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        name = next(n for n in archive.namelist() if n.endswith(".dist-info/METADATA"))
        metadata = Parser().parsestr(archive.read(name).decode())
        scripts = archive.read(name.replace("METADATA", "entry_points.txt")).decode()
    always = [need for need in metadata.get_all("Requires-Dist", []) if "extra ==" not in need]
    needs = {need.split(">")[0].split("=")[0] for need in always}
    assert needs == {"orjson", "aiokafka", "redis"}
    assert "headstart = headstart.cli:main" in scripts


def test_importing_the_client_brings_nothing_of_the_service(wheel: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path)
    # Someone else's `agents`, as the OpenAI Agents SDK is called, lives beside it.
    (tmp_path / "agents.py").write_text("mine = True\n")
    program = (
        f"import headstart, sys; assert not {SLOW} & set(sys.modules); "
        "import headstart.emitting.jsonl, headstart.cli, headstart.thresholds.reader, agents; "
        "import headstart.emitting.memory_buffer; "
        "assert agents.mine; print(headstart.__file__); print(*sorted(sys.modules), sep='\\n')"
    )
    ran = subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        env={"PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    file, *modules = ran.stdout.splitlines()
    assert Path(file).is_relative_to(tmp_path)
    assert {"orjson", "aiokafka", "redis"} <= set(modules)
    assert not {module.partition(".")[0] for module in modules} & set(FOREIGN)
