"""The configuration file of a scheduler: the document that is meant, be it alone, among others, or in a ConfigMap."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from gpuconsole.model.documents.findings import DocumentFindings
from gpuconsole.model.documents.yamlsafe import FormError, YamlDocument, read_yaml, sections

Holds = Callable[[str, str], bool]
"""(key, text) → whether this text of a ConfigMap is the one that is meant."""


def named(*keys: str) -> Holds:
    """The text of a ConfigMap under one of these keys."""
    return lambda key, _: key in keys


def unwrapped(tree: YamlDocument, holds: Holds) -> YamlDocument:
    """The document itself, or the one that it holds as a ConfigMap. Raises FormError where that cannot be read."""
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
    """The first document of a text that is `meant`, and the report for what is found in it.

    Where there is none (`absent`: the problem and its remedy), or a document cannot be read, the report says so.
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
    """All documents, read before any is used: an error anywhere is told."""
    return [read_yaml(part, line) for part, line in sections(text)]
