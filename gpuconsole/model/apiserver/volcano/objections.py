"""Errors of Volcano's webhooks: Volcano's text, the field, and a remedy."""

from collections.abc import Iterable

from msgspec import Struct

from gpuconsole.model.documents.findings import DocumentFindings, Path


class Objection(Struct, frozen=True):
    """Error of one of Volcano's webhooks."""

    path: Path
    text: str
    """As Volcano writes it, with the spaces and punctuation that separate it from others in the message."""
    remedy: str
    code: str

    @property
    def problem(self) -> str:
        """The text without these separators."""
        return self.text.strip(" ;\n.")


def message_of(objections: Iterable[Objection]) -> str:
    """Join objections to the webhook's message; empty if there are none."""
    return "".join(objection.text for objection in objections)


def report(findings: DocumentFindings, at: Path, objections: Iterable[Objection]) -> None:
    """Report objections to the object at a path."""
    for objection in objections:
        findings.refused((*at, *objection.path), objection.problem, objection.remedy, objection.code)
