"""Lint rules for comments in manifests that state an effect which the field does not have."""

import re
from collections.abc import Iterator

from msgspec import Struct

from gpuconsole.insight.linting.findings import LintFinding, LintLevel
from gpuconsole.insight.linting.scheduler import NEVER_CANCELS


class _Misreading(Struct, frozen=True, kw_only=True):
    """A common misunderstanding of a field, recognized by its comment."""

    code: str
    field: re.Pattern[str]
    """Matches the line up to its comment."""
    promise: re.Pattern[str]
    """Matches the comment."""
    denied: re.Pattern[str] | None = None
    """Matches a negation before the promise: `never cancelled`."""
    problem: str
    fix: str


_MISREADINGS = (
    _Misreading(
        code="sla-misread",
        field=re.compile(r"\b(sla-waiting-time|jobWaitingTime|sla)\b"),
        promise=re.compile(r"\b(cancel|abort|kill|delet|terminat|fail)\w*", re.IGNORECASE),
        denied=re.compile(r"\b(not|never|no|nothing|nobody|without)\b", re.IGNORECASE),
        problem=NEVER_CANCELS,
        fix="correct the comment; to cancel the job, set activeDeadlineSeconds or delete it",
    ),
    _Misreading(
        code="never-misread",
        field=re.compile(r"\bpreemptionPolicy:\s*[\"']?Never\b"),
        promise=re.compile(r"\b(never|not|cannot|can't|won't)\b[^.;]*\b(preempted|evicted|killed)\b", re.IGNORECASE),
        problem="preemptionPolicy: Never keeps its pods from preempting others, but does not protect its pods",
        fix="correct the comment; to protect its pods, give the class a higher value than that of possible preemptors",
    ),
    _Misreading(
        code="timeout-misread",
        field=re.compile(r"^\s*(- )?timeout:\s*\S"),
        promise=re.compile(r"\b(fail|evict|restart)\w*\b[^.;]*\bwithin\b", re.IGNORECASE),
        problem="a policy's timeout is how long Volcano waits after the event before it acts",
        fix="correct the comment, and write the timeout as a duration (5m)",
    ),
)
_YAML = re.compile(r"^\s*(- )?[\w./\"'-]+:")
_LONGEST = 2000


def lint_comments(text: str, name: str) -> Iterator[LintFinding]:
    """Find lines whose comment states an effect which the field does not have."""
    for number, line in enumerate(text.splitlines(), start=1):
        code, mark, comment = line[:_LONGEST].partition("#")
        if not mark or not _YAML.match(code):
            continue
        for one in _MISREADINGS:
            promise = one.promise.search(comment)
            if promise is None or not one.field.search(code):
                continue
            if one.denied is None or not one.denied.search(comment[: promise.start()]):
                yield LintFinding(
                    code=one.code,
                    level=LintLevel.WARNING,
                    object=name,
                    problem=one.problem,
                    evidence={"comment": comment.strip()},
                    fix=one.fix,
                    line=number,
                )
