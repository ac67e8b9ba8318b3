"""Plain scalars mean what Kubernetes makes of them, and every value knows its line."""

import pytest

from gpuconsole.model.documents.yaml_json import Scalar, read_yaml

SCALARS: dict[str, Scalar] = {
    "yes": True,
    "Off": False,
    "n": False,
    "true": True,
    "~": None,
    "null": None,
    "": None,
    "5": 5,
    "-5": -5,
    "1_000": 1000,
    "0x1F": 31,
    "010": 8,
    "0b101": 5,
    "1.5": 1.5,
    "1e3": 1000.0,
    "1_0.5": 10.5,
    ".5": 0.5,
    "1:30": "1:30",
    "2026-01-05": "2026-01-05",
    "2026-01-05T08:00:00Z": "2026-01-05T08:00:00Z",
    ".inf": ".inf",
    "1e999": "1e999",
    "08": 8.0,
    "0x": "0x",
    "500m": "500m",
    "1Gi": "1Gi",
    '"5"': "5",
    "'yes'": "yes",
    "!!str 5": "5",
    "!!int 5": 5,
    "9" * 100: "9" * 100,
}


@pytest.mark.parametrize(("text", "want"), SCALARS.items())
def test_scalars_mean_what_kubernetes_makes_of_them(text: str, want: Scalar) -> None:
    value = read_yaml(f"a: {text}").value["a"]
    assert (value, type(value)) == (want, type(want))


def test_keys_are_texts_as_in_json() -> None:
    assert read_yaml("{yes: 1, 5: 2, 1.5: 3, ~: 4}").value == {"true": 1, "5": 2, "1.5": 3, "null": 4}


def test_merged_keys_do_not_replace_what_stands_there() -> None:
    text = "a: &a {p: 1, q: 2}\nb: &b {q: 3, r: 4}\nc:\n  <<: [*a, *b]\n  p: 0\n"
    tree = read_yaml(text)
    assert tree.value["c"] == {"p": 0, "q": 2, "r": 4}
    assert tree.troubles == ()


LINES = {
    ("a",): 1,
    ("b",): 2,
    ("b", "c"): 3,
    ("b", "c", 1): 5,
    ("b", "d"): 6,
    ("b", "d", "missing", "deeper"): 6,
    ("missing",): 1,
    ("e",): 7,
    ("e", "x"): 6,
}


@pytest.mark.parametrize(("path", "want"), LINES.items())
def test_a_path_leads_to_its_line_or_to_the_nearest_thing_around_it(path: tuple[str | int, ...], want: int) -> None:
    tree = read_yaml("a: 1\nb:\n  c:\n  - 1\n  - 2\n  d: &d {x: 1}\ne: *d\n")
    assert tree.place.find(path) == want


def test_a_key_that_stands_twice_is_named_with_both_lines() -> None:
    tree = read_yaml("a:\n  - b: 1\n    c: 2\n    b: 3\n", first_line=10)
    assert [(t.line, t.path, t.code) for t in tree.troubles] == [(13, ("a", 0, "b"), "duplicate-key")]
    assert tree.troubles[0].problem == "the key 'b' is duplicated, first at line 11"
    assert tree.value == {"a": [{"b": 3, "c": 2}]}
