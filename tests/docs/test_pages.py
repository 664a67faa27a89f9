"""The pages are true: generated parts are current, links lead somewhere, commands exist."""

from __future__ import annotations

import re

import pytest

from docs.generate import ARCHITECTURE, FOLDER, PAGES, architecture, page
from tests.docs.pages import (
    FILES,
    ROOT,
    TEXTS,
    blocks,
    check_command,
    command_lines,
    command_spans,
    prose,
    spans,
)

LINES = list(command_lines())
MAKE = set(re.findall(r"(?m)^([a-z-]+):", (ROOT / "Makefile").read_text()))
FIRST_WORDS = ("After this page", "Find the page")
"""How a page begins: with what its reader can do after it."""


def named(value: object) -> str | None:
    """Return the id of a test for a command or a text."""
    if isinstance(value, list):
        return " ".join(value)[:60]
    return value[:30].strip() if isinstance(value, str) else None


@pytest.mark.parametrize("name", PAGES)
def test_the_reference_agrees_with_the_code(name: str) -> None:
    assert (FOLDER / name).read_text() == page(name), "run `make docs`"


def test_the_architecture_page_lists_every_module() -> None:
    text = ARCHITECTURE.read_text()
    assert text == architecture(text), "run `make docs`"
    assert "`shipper.py`" in text or "`shipping/shipper.py`" in text  # or the section was lost


def test_every_page_is_in_the_index() -> None:
    index = TEXTS["docs/index.md"]
    missing = [
        path.relative_to(ROOT / "docs").as_posix()
        for path in FILES
        if path.is_relative_to(ROOT / "docs")
    ]
    missing.remove("index.md")
    assert [name for name in missing if f"]({name}" not in index] == []


@pytest.mark.parametrize("name", [name for name in TEXTS if name.startswith("docs/")])
def test_a_page_begins_with_what_its_reader_can_do(name: str) -> None:
    if "/decisions/" in name:
        return
    lines = [line for line in prose(name).splitlines() if line and not line.startswith("<!--")]
    assert lines[0].startswith("# ")
    assert lines[1].startswith(FIRST_WORDS), lines[1]


@pytest.mark.parametrize(("name", "words"), LINES, ids=named)
def test_a_command_in_the_docs_is_one(name: str, words: list[str]) -> None:
    check_command(name, words)


@pytest.mark.parametrize(("name", "words"), list(command_spans()), ids=named)
def test_a_command_within_a_sentence_is_one(name: str, words: list[str]) -> None:
    check_command(name, words)


def test_the_docs_have_commands() -> None:
    assert len(LINES) > 50, "this suite sees none"


@pytest.mark.parametrize("name", TEXTS)
def test_targets_of_make_exist(name: str) -> None:
    code = [*spans(name), *(text for page, text in blocks("") if page == name)]
    assert set(re.findall(r"(?m)^make ([a-z-]+)", "\n".join(code))) <= MAKE


@pytest.mark.parametrize(("name", "text"), list(blocks("python")), ids=named)
def test_python_in_the_docs_is_python(name: str, text: str) -> None:
    # A block may be the inside of a coroutine.
    body = "".join(f"    {line}\n" for line in text.splitlines())
    compile(f"async def block():\n{body}", name, "exec")


def anchors(text: str) -> set[str]:
    """Return the names under which a page's headings are found."""
    titles = re.findall(r"(?m)^#+ (.+)$", re.sub(r"(?ms)^```.*?^```", "", text))
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("name", TEXTS)
def test_links_lead_somewhere(name: str) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", prose(name)):
        if target.startswith(("http", "mailto")):
            continue
        path, _, anchor = target.partition("#")
        file = ((ROOT / name).parent / path).resolve() if path else ROOT / name
        assert file.exists(), target
        if anchor:
            assert anchor in anchors(file.read_text()), target
