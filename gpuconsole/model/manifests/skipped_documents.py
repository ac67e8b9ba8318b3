"""Findings about skipped documents: incomplete manifests, unknown kinds, and versions that are not served."""

from collections.abc import Sequence
from enum import Enum, auto
from typing import Any

from gpuconsole.model.documents.findings import DocumentFindings, Severity
from gpuconsole.model.documents.reader import Reader
from gpuconsole.model.manifests.kinds import DECODERS, LAST_ALPHA, versions_of
from gpuconsole.model.manifests.unread_kinds import has_no_effect, is_unsimulated, likely_meant
from gpuconsole.model.text import clean

_MOST_NAMES = 8


def say_fragment(report: DocumentFindings, value: dict[str, Any], prose: bool) -> None:
    """Report a part of a manifest; in prose this is only a note."""
    top = clean(", ".join(str(key) for key in list(value)[:3]), 80)
    missing = " and no ".join(key for key in ("apiVersion", "kind") if key not in value)
    report.add(
        Severity.NOTE if prose else Severity.ERROR,
        (),
        f"this is a part of a manifest ({top}): it has no {missing}",
        "move it into its object, or add apiVersion and kind",
        "fragment",
    )


def say_ignored(report: DocumentFindings, files: Sequence[str]) -> None:
    """Report the files of a folder that are not manifests, in one line."""
    names = ", ".join(clean(name, 100) for name in files[:_MOST_NAMES])
    more = f" and {len(files) - _MOST_NAMES} more" if len(files) > _MOST_NAMES else ""
    one = len(files) == 1
    what = (
        "1 file is not a Kubernetes manifest and is"
        if one
        else f"{len(files)} files are not Kubernetes manifests and are"
    )
    report.note((), f"{what} ignored: {names}{more}", "to check such a file, pass its path", "ignored-files")


def say_version(place: Reader, group: str, version: str, kind: str) -> None:
    """Report a version that is not served, and the version in whose form the document is read."""
    served = versions_of(group, kind)
    form = "v1beta1" if (group, version) == LAST_ALPHA else served[-1]
    problem = f"{kind} is not served in version {clean(version, 60)}"
    if (group, version) == LAST_ALPHA:
        problem = f"version {version} of {kind} was removed in Kubernetes 1.34"
    known = f" (known are {', '.join(served[:-1])} and {served[-1]})" if len(served) > 1 else ""
    place.report.refused(
        place.at("apiVersion"),
        f"{problem}{known}; it is read in the form of {form}",
        f"write apiVersion: {group}{'/' if group else ''}{form}",
        "old-version",
    )


class UnreadReason(Enum):
    """Reason why a document is not read."""

    NO_KIND = auto()
    NO_EFFECT = auto()
    UNSIMULATED = auto()
    UNKNOWN = auto()


def say_unread(place: Reader, group: str, kind: str, name: str) -> UnreadReason:
    """Report why a document of a kind that is not read is left out, and return the reason."""
    report, path = place.report, place.at("kind")
    if not kind:
        report.error(path, "it has no kind", "write kind: ClusterQueue, for example", "no-kind")
        return UnreadReason.NO_KIND
    if has_no_effect(group, kind):
        report.note(path, f"{kind} is read; it has no effect on queues and GPUs here", "nothing to do", "no-effect")
        return UnreadReason.NO_EFFECT
    if is_unsimulated(group, kind):
        problem = f"{kind} is not simulated; it is ignored"
        remedy = "to see its pods here, write it as a Job or JobSet"
        report.warning(path, problem, remedy, "not-simulated")
        return UnreadReason.UNSIMULATED
    meant = likely_meant(group, kind, DECODERS)
    severity = Severity.WARNING if meant else Severity.NOTE
    remedy = f"did you mean {meant}?" if meant else "nothing to do, unless it places pods"
    report.add(severity, path, f"{name} is an unknown kind; it is ignored", remedy, "unknown-kind")
    return UnreadReason.UNKNOWN
