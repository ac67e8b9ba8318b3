"""Files, folders, standard input; YAML and JSON, one document or many."""

import json
from pathlib import Path

from gpuconsole.model.manifests import load, load_text


def namespace(name: str) -> str:
    return f"apiVersion: v1\nkind: Namespace\nmetadata: {{name: {name}}}\n"


def test_folders_are_read_in_a_stable_order_without_hidden_ones(tmp_path: Path) -> None:
    for path in ("b/two.yml", "a/one.yaml", "three.json", "notes.txt", ".git/four.yaml", "b/c/five.yaml"):
        file = tmp_path / path
        file.parent.mkdir(parents=True, exist_ok=True)
        name = file.stem
        text = json.dumps({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
        file.write_text(text if file.suffix == ".json" else namespace(name))
    loaded = load([tmp_path])
    assert [thing.key for thing in loaded.objects] == ["three", "one", "two", "five"]
    assert loaded.findings == ()


def test_a_folder_of_texts_gives_the_manifests_that_stand_in_them(tmp_path: Path) -> None:
    (tmp_path / "a.md").write_text(f"# Queues\n\n```yaml\n{namespace('a')}```\n")
    (tmp_path / "b.txt").write_text("nothing here")
    loaded = load([tmp_path])
    assert ([thing.key for thing in loaded.objects], loaded.findings) == (["a"], ())
    # Beside manifests, texts are documentation: their examples are not meant.
    (tmp_path / "c.yaml").write_text(namespace("c"))
    assert [thing.key for thing in load([tmp_path]).objects] == ["c"]


def test_a_folder_without_manifests_says_so(tmp_path: Path) -> None:
    assert [f.code for f in load([tmp_path]).findings] == ["empty-folder"]


def test_a_file_that_is_not_there_is_an_error_and_the_others_are_read(tmp_path: Path) -> None:
    (tmp_path / "here.yaml").write_text(namespace("here"))
    loaded = load([tmp_path / "gone.yaml", tmp_path / "here.yaml"])
    assert [thing.key for thing in loaded.objects] == ["here"]
    assert [(f.code, f.problem) for f in loaded.findings] == [
        ("unreadable", "it cannot be read: No such file or directory")
    ]


def test_a_dash_stands_for_standard_input() -> None:
    loaded = load(["-"], stdin=namespace("piped"))
    assert [thing.key for thing in loaded.objects] == ["piped"]


def test_many_documents_with_comments_and_empty_ones_between() -> None:
    text = f"# first\n{namespace('a')}---\n---\n# nothing here\n--- # second\n{namespace('b')}...\n"
    assert [thing.key for thing in load_text(text, "many.yaml").objects] == ["a", "b"]


def test_json_documents_may_follow_each_other() -> None:
    document = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "a\ud83d\ude00"}}
    text = json.dumps(document, indent=2) + "\n" + json.dumps({**document, "metadata": {"name": 5}})
    loaded = load_text(text, "two.json")
    assert [thing.key for thing in loaded.objects] == ["a😀", "5"]
    assert [(f.code, f.line, f.path) for f in loaded.findings] == [
        ("bad-name", 1, "metadata.name"),
        ("not-a-text", 8, "metadata.name"),
    ]


def test_lines_in_json_are_those_of_the_fields() -> None:
    text = '\n{\n "apiVersion": "v1",\n "kind": "Namespace",\n "metadata": {\n  "name": "a",\n  "labels": 3\n }\n}\n'
    assert [(f.line, f.path) for f in load_text(text, "a.json").findings] == [(7, "metadata.labels")]


def test_a_byte_order_mark_and_windows_line_ends_are_no_trouble(tmp_path: Path) -> None:
    path = tmp_path / "windows.yaml"
    path.write_bytes(b"\xef\xbb\xbf" + namespace("a").replace("\n", "\r\n").encode())
    wide = tmp_path / "wide.yaml"
    wide.write_bytes(namespace("b").encode("utf-16"))
    loaded = load([path, wide])
    assert ([thing.key for thing in loaded.objects], loaded.findings) == (["a", "b"], ())
