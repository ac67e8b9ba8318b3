"""Errors of Volcano's webhooks: Volcano's text, the field, and a remedy."""

from collections.abc import Iterable

from msgspec import Struct

from gpuconsole.model.documents.findings import DocumentFindings, Path


class Objection(Struct, frozen=True):
    """One part of a refusal."""

    path: Path
    text: str
    """As Volcano writes it, with the blanks and signs between which it stands in the whole message."""
    remedy: str
    code: str

    @property
    def problem(self) -> str:
        """The text for a person."""
        return self.text.strip(" ;\n.")


def message_of(objections: Iterable[Objection]) -> str:
    """The whole message of a refusal; nothing if there is none."""
    return "".join(objection.text for objection in objections)


def report(findings: DocumentFindings, at: Path, objections: Iterable[Objection]) -> None:
    """Report objections to an object that stands at a path."""
    for objection in objections:
        findings.refused((*at, *objection.path), objection.problem, objection.remedy, objection.code)
