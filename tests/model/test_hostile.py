"""Hostile input gets a clear answer; nothing is raised, nothing is expanded, nothing large is read."""

import os
from pathlib import Path

import pytest

from gpuconsole.model.documents.sources import MOST_BYTES
from gpuconsole.model.manifests import Severity, load, load_text

HEAD = "apiVersion: kueue.x-k8s.io/v1beta2\nkind: ClusterQueue\nmetadata: {name: q}\nspec:\n  namespaceSelector: {}\n"
QUOTA = (
    "  resourceGroups: [{coveredResources: [cpu], flavors: [{name: f, resources: [{name: cpu, nominalQuota: %s}]}]}]\n"
)
LAUGHS = "a0: &a0 [lol]\n" + "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]\n" for n in range(1, 12))

TEXTS = {
    "a billion laughs": (LAUGHS, "too-many-aliases", "repeat more than"),
    "a mapping that contains itself": ("a: &a {b: *a}\n", "alias-cycle", "*a contains itself"),
    "an alias to nothing": ("a: *b\n", "bad-alias", "*b is not defined above"),
    "brackets without end": ("[" * 100_000, "too-deep", "nested deeper than 100 levels"),
    "mappings without end": ("\n".join(" " * n + "a:" for n in range(500)), "too-deep", "nested deeper"),
    "a NUL byte": (HEAD.replace("name: q", 'name: "q\0"'), "control-character", "U+0000"),
    "an escape sequence": (HEAD.replace("name: q", "name: q\x1b[2J"), "control-character", "U+001B"),
    "a key that stands twice": (HEAD + "  cohort: a\n  cohort: b\n", "duplicate-key", "is duplicated, first at line 6"),
    "a key that is a mapping": ("{{a: b}: c}\n", "bad-key", "a mapping key must be a text"),
    "a template": (
        "kind: Node\nmetadata:\n  name: {{ .Values.name }}\n",
        "template",
        "render it first, such as by helm template",
    ),
    "a tag that would run code": ("a: !!python/object/apply:os.system [ls]\n", "tag", "is not allowed"),
    "a number with five thousand digits": (HEAD + QUOTA % ("9" * 5000), "bad-quantity", "quantities must match"),
    "a quota that is too large to print": (HEAD + QUOTA % "1e999", "huge-quantity", "larger than Kubernetes can hold"),
    "tabs": ("a:\n\tb: 1\n", "syntax", "indent with spaces"),
    "a list": ("- a\n- b\n", "not-an-object", "expected an object, found a list"),
    "a text": ("hello", "not-an-object", "expected an object, found a text"),
    "nothing": ("# nothing\n---\n", "no-manifest", "it holds no manifest"),
}


@pytest.mark.parametrize(("text", "code", "says"), TEXTS.values(), ids=TEXTS.keys())
def test_a_hostile_text_is_named_for_what_it_is(text: str, code: str, says: str) -> None:
    findings = load_text(text, "hostile.yaml").findings
    matching = [f for f in findings if f.code == code]
    assert len(matching) == 1, findings
    assert says in f"{matching[0].problem} | {matching[0].remedy}"


JSON = {
    "brackets without end": ("[" * 100_000, "too-deep"),
    "a key that stands twice": ('{"apiVersion": "v1", "kind": "Pod", "kind": "Node"}', "duplicate-key"),
    "more values than a file may have": ("[" + "1," * 4_000_001 + "1]", "too-large"),
    "a file that breaks off": ('{"apiVersion": "v1", "kind": "Pod", ', "syntax"),
}


@pytest.mark.parametrize(("text", "code"), JSON.values(), ids=JSON.keys())
def test_hostile_json_is_named_for_what_it_is(text: str, code: str) -> None:
    assert code in [f.code for f in load_text(text, "hostile.json").findings]


def test_a_file_of_a_hundred_megabytes_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "large.yaml"
    with path.open("wb") as file:
        file.truncate(100 * 1024 * 1024)
    (finding,) = load([path]).findings
    assert (finding.code, finding.severity) == ("too-large", Severity.ERROR)
    assert finding.problem == "it has 104857600 bytes; at most 32 MiB are read"


@pytest.mark.skipif(not os.path.exists("/dev/zero"), reason="there is no endless file here")
def test_a_file_without_end_is_read_up_to_the_limit() -> None:
    (finding,) = load(["/dev/zero"]).findings
    assert finding.code == "too-large"


def test_a_text_beyond_the_limit_is_not_parsed() -> None:
    (finding,) = load_text("a" * (MOST_BYTES + 1), "large.yaml").findings
    assert finding.code == "too-large"


def test_bytes_that_are_no_utf8_are_named_and_the_rest_is_read(tmp_path: Path) -> None:
    path = tmp_path / "latin1.yaml"
    path.write_bytes(b"apiVersion: v1\nkind: Namespace\nmetadata: {name: team, labels: {x: caf\xe9}}\n")
    loaded = load([path])
    assert [thing.key for thing in loaded.objects] == ["team"]
    assert [(f.code, f.line) for f in loaded.findings] == [("not-utf-8", 3), ("bad-label", 3)]


def test_text_from_outside_is_cleaned_on_its_way_in() -> None:
    text = HEAD.replace("{name: q}", '{name: q, annotations: {a: "\\e[2J\\u202e"}}').replace("ClusterQueue", "Cohort")
    text += '  "\\e]0;x\\a": 1\n'
    loaded = load_text(text, "evil.yaml")
    assert all(part.isprintable() for f in loaded.findings for part in (f.path, f.problem, f.remedy, f.object, f.file))


def test_findings_beyond_what_anyone_reads_are_not_kept() -> None:
    text = HEAD + "".join(f"  x{n}: 1\n" for n in range(2000))
    findings = load_text(text, "many.yaml").findings
    assert len(findings) == 501
    assert findings[-1].code == "too-many-findings"


def test_aliases_within_reason_are_fine() -> None:
    text = "apiVersion: v1\nkind: Namespace\nmetadata: {name: team, labels: &l {a: b}, annotations: {<<: *l, c: d}}\n"
    loaded = load_text(text, "aliases.yaml")
    assert [thing.key for thing in loaded.objects] == ["team"]
    assert loaded.findings == ()
