"""How what is wrong with files is written."""

from gpuconsole.model.documents.findings import Finding
from gpuconsole.model.text import clean


def as_line(finding: Finding) -> str:
    """A finding as compilers write it: place, severity, what is wrong, what would be right."""
    subject = " ".join(part for part in (finding.object, finding.path) if part)
    where = f"{finding.file}:{finding.line}: {finding.severity}:"
    return clean(
        " ".join([where, f"{subject}:" if subject else "", f"{finding.problem}; {finding.remedy}"]).replace("  ", " ")
    )
