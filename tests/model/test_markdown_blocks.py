"""Manifests are found among prose, code and tables, and nothing else is taken for one."""

import pytest

from gpuconsole.model.documents.sources import blocks
from gpuconsole.model.manifests import Severity, load_text

POD = "apiVersion: v1\nkind: Pod\nmetadata:\n  name: a"

FOUND = {
    "prose before and after": (f"Some text:\n\n{POD}\n\nMore text follows.\n", [(3, POD)]),
    "a heading right after": (f"{POD}\nKey Takeaway\n", [(1, POD)]),
    "a comment and a blank line inside": (
        f"{POD}\n\n# why\nspec:\n  x: 1\n\nText\n",
        [(1, f"{POD}\n\n# why\nspec:\n  x: 1")],
    ),
    "two documents with dashes between": (f"{POD}\n---\n# two\n{POD}\nEnd\n", [(1, f"{POD}\n---\n# two\n{POD}")]),
    "two documents without dashes": (f"{POD}\n\n{POD}\n", [(1, POD), (6, POD)]),
    "a fenced block in a list": (
        "1. Do this:\n   ```yaml\n   apiVersion: v1\n   kind: Pod\n   ```\nDone.\n",
        [(3, "apiVersion: v1\nkind: Pod")],
    ),
    "a here-document in a shell script": (f"kubectl apply -f - <<EOF\n{POD}\nEOF\necho done\n", [(2, POD)]),
    "a block scalar with prose in it": (
        f"{POD}\ndata:\n  note: |\n    Not: YAML [\n\n    still in\nEnd of it\n",
        [(1, f"{POD}\ndata:\n  note: |\n    Not: YAML [\n\n    still in")],
    ),
    "a command over several lines": (
        f"{POD}\nspec:\n  command:\n  - run\n  - --flag=1\n  args: [a,\n    b]\n",
        [(1, f"{POD}\nspec:\n  command:\n  - run\n  - --flag=1\n  args: [a,\n    b]")],
    ),
    "an indented paragraph after a blank line": (f"{POD}\n\n  This is prose.\n", [(1, POD)]),
    "a fragment": ("spec:\n  tolerations:\n  - key: a\n\nText\n", [(1, "spec:\n  tolerations:\n  - key: a")]),
    "python": ("try:\n    x = 1\nexcept ValueError:\n    pass\nclass A:\n    kind = 'b'\n", []),
    "a python dictionary": ('POD = {\n    "kind": "Pod",\n    "apiVersion": "v1",\n}\n', []),
    "a table": ("Resource  Scope\nkind      Cluster\nspec: what it wants\n", []),
    "a box of lines": ("│  spec: GPU │\n├── LocalQueue: a (quota: 16)\n", []),
    "a sentence about kinds": ("kind: of a thing that has no kind\nspec:\nnot nested\n", []),
}


@pytest.mark.parametrize(("text", "want"), FOUND.values(), ids=FOUND.keys())
def test_blocks_are_found_where_they_begin_and_end(text: str, want: list[tuple[int, str]]) -> None:
    assert [(block.line, block.text) for block in blocks(text)] == want


def test_a_part_of_a_manifest_is_a_note() -> None:
    (finding,) = load_text("Text\nspec:\n  tolerations:\n  - key: a\n  - key: a\n", "a.txt").findings
    assert (finding.severity, finding.code, finding.line) == (Severity.NOTE, "fragment", 2)
    assert finding.problem == "this is a part of a manifest (spec): it has no apiVersion and no kind"


def test_lines_and_documents_count_through_the_whole_text() -> None:
    text = f"Text\n\n{POD}\nspec: []\n\nMore\n{POD}\nspec:\n  containers: 5\n"
    found = [(f.line, f.document, f.path) for f in load_text(text, "a.md").findings if f.severity == Severity.ERROR]
    assert found == [(7, 1, "spec"), (15, 2, "spec.containers")]


def test_a_broken_block_is_an_error_at_its_line() -> None:
    text = f"Text\n{POD}\nspec:\n  a: [1\n  b: 2\n\nText\n"
    assert [(f.code, f.line) for f in load_text(text, "a.txt").findings] == [("syntax", 8)]


@pytest.mark.parametrize("name", ["<stdin>", "notes", "a.txt"])
def test_a_text_of_unknown_form_is_looked_at(name: str) -> None:
    assert [thing.key for thing in load_text(f"Hello\n\n{POD}\n", name).objects] == ["default/a"]
    assert [thing.key for thing in load_text(f"{POD}\n", name).objects] == ["default/a"]
