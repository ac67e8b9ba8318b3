"""Paths and links in the documentation exist."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PRODUCT = "gpuconsole"
TOP = ("gpuconsole", "tests", "docs", "fixtures", "themes", "deploy", ".ci")
PAGES = sorted([ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").glob("*.md")])

_FENCE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
_CODE = re.compile(r"`([^`\n]+)`")
_PATH = re.compile(r"\.?[\w-]+(/[\w.-]+)*(/|\.(py|md|yaml|toml|txt|tcss|svg)|/run)")
_LINK = re.compile(r"\]\(([^)\s]+)\)")
_PLACEHOLDERS = ("NAME",)


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


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_relative_links_resolve(page: Path) -> None:
    links = [link.partition("#")[0] for link in _LINK.findall(_FENCE.sub("", page.read_text(encoding="utf-8")))]
    relative = [link for link in links if link and "://" not in link and not link.startswith("mailto:")]
    assert [link for link in relative if not (page.parent / link).exists()] == []
