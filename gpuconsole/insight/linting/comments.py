"""Comments in manifests that promise what nothing does: that an sla cancels a job."""

import re
from collections.abc import Iterator

from gpuconsole.insight.linting.findings import Finding, Level
from gpuconsole.insight.linting.scheduler import NEVER_CANCELS

_SLA = re.compile(r"\b(sla-waiting-time|jobWaitingTime|sla)\b")
_PROMISE = re.compile(r"\b(cancel|abort|kill|delet|terminat|fail)\w*", re.IGNORECASE)
_DENIED = re.compile(r"\b(not|never|no|nothing|nobody|without)\b", re.IGNORECASE)
_YAML = re.compile(r"^\s*(- )?[\w./\"'-]+:")
_LONGEST = 2000


def lint(text: str, name: str) -> Iterator[Finding]:
    """Lines of a manifest's text that set a waiting time of sla and say in a comment that the job is cancelled then."""
    for number, line in enumerate(text.splitlines(), start=1):
        code, mark, comment = line[:_LONGEST].partition("#")
        if not mark or not _YAML.match(code) or not _SLA.search(code):
            continue
        if _PROMISE.search(comment) and not _DENIED.search(_before(comment)):
            yield Finding(
                code="sla-misread",
                level=Level.WARNING,
                object=name,
                problem=f"{NEVER_CANCELS}",
                evidence={"comment": comment.strip()},
                fix="say so in the comment; who wants it cancelled sets activeDeadlineSeconds, or deletes it",
                line=number,
            )


def _before(comment: str) -> str:
    """What a comment says before the word that promises something: `never cancelled` promises nothing."""
    match = _PROMISE.search(comment)
    return comment[: match.start()] if match is not None else comment
