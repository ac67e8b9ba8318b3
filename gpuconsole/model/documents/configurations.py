"""Configuration file of a scheduler: a document alone, among others, or in a ConfigMap."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from gpuconsole.model.documents.findings import DocumentFindings
from gpuconsole.model.documents.yamlsafe import FormError, YamlDocument, read_yaml, sections

Holds = Callable[[str, str], bool]
"""(key, text) → True if this entry of a ConfigMap is the configuration."""


def named(*keys: str) -> Holds:
    """Match the entry of a ConfigMap under one of these keys."""
    return lambda key, _: key in keys


def unwrapped(tree: YamlDocument, holds: Holds) -> YamlDocument:
    """Return the document, or the one that it holds as a ConfigMap. Raises FormError if that cannot be read."""
    held = tree.value.get("data") if isinstance(tree.value, dict) and tree.value.get("kind") == "ConfigMap" else None
    for key, text in held.items() if isinstance(held, dict) else ():
        if isinstance(text, str) and holds(key, text):
            return read_yaml(text, tree.place.find(("data", key)) + 1)
    return tree


def find_configuration(
    text: str,
    name: str,
    *,
    meant: Callable[[Mapping[str, Any]], bool],
    holds: Holds,
    absent: tuple[str, str],
    strict: bool = False,
) -> tuple[dict[str, Any] | None, DocumentFindings]:
    """Return the first document of a text for which `meant` is true, and a report for findings in it.

    If there is none (`absent`: problem and remedy), or a document cannot be read, the report contains that error.
    """
    try:
        for tree in _trees(text):
            inner = unwrapped(tree, holds)
            if isinstance(inner.value, dict) and meant(inner.value):
                return inner.value, DocumentFindings(name, line_of=inner.place.find, strict=strict)
    except FormError as error:
        trouble = error.problem
        report = DocumentFindings(name, line_of=lambda _: trouble.line)
        report.error((), trouble.problem, trouble.remedy, trouble.code)
        return None, report
    report = DocumentFindings(name)
    report.error((), *absent, "no-configuration")
    return None, report


def _trees(text: str) -> Iterable[YamlDocument]:
    """Read all documents before one is used, so that an error in any of them is reported."""
    return [read_yaml(part, line) for part, line in sections(text)]
