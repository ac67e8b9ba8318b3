"""Paths and links in the documentation exist, examples give the output that is shown, generated tables are current."""

import os
import re
import shlex
import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import click
import pytest

from gpuconsole import __version__
from gpuconsole.cli import cli
from tests.support.command_line import Line
from tests.tools import reference

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
PRODUCT = "gpuconsole"
TOP = ("gpuconsole", "tests", "docs", "fixtures", "themes", "deploy", ".ci")
PAGES = sorted([ROOT / "README.md", ROOT / "CONTRIBUTING.md", *DOCS.rglob("*.md")])
EXAMPLES = sorted([*(DOCS / "tutorial").glob("*.md"), *(DOCS / "how-to").glob("*.md")])

_FENCE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
_BLOCK = re.compile(r"^(?P<indent> *)```(?P<kind>\w+)\n(?P<text>.*?)^ *```", re.MULTILINE | re.DOTALL)
_CODE = re.compile(r"`([^`\n]+)`")
_PATH = re.compile(r"\.?[\w-]+(/[\w.-]+)*(/|\.(py|md|yaml|toml|txt|tcss|svg)|/run)")
_LINK = re.compile(r"\]\(([^)\s]+)\)")
_PLACEHOLDERS = ("NAME",)
SETTINGS = dict(cli.context_settings)
"""Of the command line: click keeps the help option that it makes first in the command."""
_INTERACTIVE = ("run", "drill play")
"""Commands that open the console."""


def page_id(page: Path) -> str:
    return str(page.relative_to(ROOT))


def paths_of(text: str) -> list[str]:
    """The files and folders that a page names, written as code; those beside the project and placeholders excluded."""
    spans = _CODE.findall(_FENCE.sub("", text))
    words = [word for span in spans for word in span.split()]
    return [
        word for word in words if _PATH.fullmatch(word) and "*" not in word and Path(word).stem not in _PLACEHOLDERS
    ]


def candidates(path: str, folder: str) -> list[Path]:
    """What a path may mean: from the root, else from the product's folder or from the folder named last on the page."""
    if path.split("/")[0] in TOP:
        return [ROOT / path]
    return [ROOT / path, ROOT / PRODUCT / path, ROOT / folder / path]


@pytest.mark.parametrize(
    ("page", "folder", "least"),
    [("docs/architecture.md", "gpuconsole/scheduling/kueue", 120), ("CONTRIBUTING.md", "", 50)],
)
def test_every_path_that_a_page_names_exists(page: str, folder: str, least: int) -> None:
    named = paths_of((ROOT / page).read_text(encoding="utf-8"))
    assert [path for path in named if not any(found.exists() for found in candidates(path, folder))] == []
    assert len(named) >= least


@pytest.mark.parametrize("page", PAGES, ids=page_id)
def test_relative_links_resolve(page: Path) -> None:
    links = [link.partition("#")[0] for link in _LINK.findall(_FENCE.sub("", page.read_text(encoding="utf-8")))]
    relative = [link for link in links if link and "://" not in link and not link.startswith("mailto:")]
    assert [link for link in relative if not (page.parent / link).exists()] == []


def navigated(entries: Sequence[Any]) -> Iterator[str]:
    """The pages of the site's navigation."""
    for entry in entries:
        for below in entry.values():
            yield from navigated(below) if isinstance(below, list) else [below]


def test_the_navigation_has_every_page_once() -> None:
    site = tomllib.loads((ROOT / "zensical.toml").read_text(encoding="utf-8"))["project"]
    assert sorted(navigated(site["nav"])) == sorted(str(page.relative_to(DOCS)) for page in DOCS.rglob("*.md"))


@pytest.mark.parametrize("page", reference.pages(), ids=page_id)
def test_a_generated_page_is_current(page: Path) -> None:
    assert page.read_text(encoding="utf-8") == reference.generated(page), "run `make docs` and commit the page"


def test_every_region_that_is_generated_is_on_a_page() -> None:
    text = "".join(page.read_text(encoding="utf-8") for page in reference.pages())
    assert [name for name in reference.REGIONS if f"<!-- generated: {name} -->" not in text] == []


class Example(NamedTuple):
    """A command of a page, with the output that the page shows."""

    arguments: list[str]
    shown: list[str]


def examples(page: Path) -> list[Example]:
    """The commands of a page, in order."""
    found: list[Example] = []
    for block in _BLOCK.finditer(page.read_text(encoding="utf-8")):
        if block["kind"] != "console":
            continue
        for line in block["text"].splitlines():
            text = line.removeprefix(block["indent"])
            if text.startswith("$ "):
                found.append(Example(shlex.split(text.removeprefix("$ "), comments=True), []))
            elif text.strip() not in ("", "…"):
                found[-1].shown.append(text)
    return [example for example in found if example.arguments[:1] == [PRODUCT]]


def files(page: Path) -> dict[str, str]:
    """The files that a page asks to save: YAML blocks that begin with `# NAME`."""
    blocks = [block["text"] for block in _BLOCK.finditer(page.read_text(encoding="utf-8")) if block["kind"] == "yaml"]
    named = [(re.match(r"# ([\w/.-]+\.yaml)\n", text), text) for text in blocks]
    return {match[1]: text for match, text in named if match is not None}


def resolved(arguments: Sequence[str]) -> tuple[str, click.Command, list[str]]:
    """The command that the arguments start, with its name and the rest of the arguments."""
    name, rest = "", list(arguments)
    command: click.Command = cli
    if not rest or rest[0] == "--live":
        rest.insert(0, "run")
    if rest[0].startswith("--"):
        return name, command, rest
    while isinstance(command, click.Group):
        word = rest.pop(0)
        below = command.get_command(click.Context(command, **SETTINGS), word)
        assert below is not None, f"no command {word!r}"
        name, command = f"{name} {word}".strip(), below
    return name, command, rest


@pytest.mark.parametrize("page", PAGES, ids=page_id)
def test_every_command_that_a_page_shows_has_these_options(page: Path) -> None:
    for example in examples(page):
        _, command, rest = resolved(example.arguments[1:])
        # The parser alone: no files need to exist, and an unknown option is an error.
        parser = command.make_parser(click.Context(command, **SETTINGS))
        parser.parse_args([word for word in rest if word not in ("|", "head")])


@pytest.mark.usefixtures("measured_latencies")
@pytest.mark.parametrize("page", EXAMPLES, ids=page_id)
def test_an_example_gives_the_output_that_the_page_shows(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each shown line is a line of the output, in this order; `…` stands for lines that are left out."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GPUCONSOLE_STATE_DIR", str(tmp_path / "state"))
    for name, text in files(page).items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
    run = Line(monkeypatch, capsys)
    for arguments, shown in examples(page):
        if "--live" in arguments or resolved(arguments[1:])[0] in _INTERACTIVE:
            continue
        result = run(*arguments[1:])
        assert result.status == 0, result.err
        lines = iter([line.rstrip() for line in result.lines])
        missing = [line for line in shown if line.rstrip() not in lines]
        assert missing == [], f"{shlex.join(arguments)} prints\n{os.linesep.join(result.lines)}"


def test_the_changelog_has_the_version_of_the_package() -> None:
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert re.findall(r"^## \[(.+)\]", text, re.MULTILINE)[:2] == ["Unreleased", __version__]
    assert project["version"] == __version__
    kinds = re.findall(r"^### (.+)", text, re.MULTILINE)
    assert [
        kind for kind in kinds if kind not in ("Added", "Changed", "Deprecated", "Removed", "Fixed", "Security")
    ] == []
