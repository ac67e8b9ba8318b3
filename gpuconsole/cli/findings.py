"""Text form of findings about files."""

from gpuconsole.model.documents.findings import Finding
from gpuconsole.model.text import clean


def as_line(finding: Finding) -> str:
    """Format a finding as compilers do: position, severity, problem, fix."""
    subject = " ".join(part for part in (finding.object, finding.path) if part)
    where = f"{finding.file}:{finding.line}: {finding.severity}:"
    return clean(
        " ".join([where, f"{subject}:" if subject else "", f"{finding.problem}; {finding.remedy}"]).replace("  ", " ")
    )
