"""Decoding of objects from documents: what a document holds, which documents are skipped, and the result.

A document is one object, a list, or a scenario with the objects that it creates. Skipped are incomplete manifests,
unknown kinds, and known kinds that have no effect or are not simulated. Plain pods of one pod group become one job
after all documents are read. `decode_objects` does this for documents that were validated elsewhere, and reports only
those that cannot be read; `manifests.loading` does it for files, with findings.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from enum import Enum, auto
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from gpuconsole.model.clock import Time
from gpuconsole.model.documents.findings import DocumentFindings, Finding, Path, Severity, Silence
from gpuconsole.model.documents.metadata import GeneratedNames
from gpuconsole.model.documents.reader import Reader
from gpuconsole.model.job import Job
from gpuconsole.model.jobs.services_and_pod_groups import FAST, GROUP, group_of, pod_group, total_of
from gpuconsole.model.jobs.workloads import POD, POD_GROUP
from gpuconsole.model.manifests.kinds import DECODERS, LAST_ALPHA, decoder_of, kind_of_document, versions_of
from gpuconsole.model.objects import TABLES, Object
from gpuconsole.model.text import clean


class LoadedObject(Struct, frozen=True, kw_only=True):
    """An object, and the document from which it was read."""

    obj: Object
    place: Reader
    keep: bool = True
    """False for objects that only a scenario creates."""
    scope: str = ""
    """Source of the scenario to which it belongs, or empty; scenarios are independent of each other."""
    later: bool = False
    """True if a step of the scenario creates it; an earlier object of its name may be deleted by then."""

    @property
    def table(self) -> str:
        return TABLES[type(self.obj)]


class LoadedManifests(Struct, frozen=True, kw_only=True):
    """Objects in a set of files, and findings about them."""

    objects: tuple[Object, ...] = ()
    """In the order in which a cluster would create them; the last one of objects that are given twice."""
    findings: tuple[Finding, ...] = ()
    """Sorted by file and line."""
    unknown: Mapping[str, int] = {}
    """`Kind (group)` → number of documents of that unknown kind."""
    known_unsimulated: Mapping[str, int] = {}
    """`Kind (group)` → number of documents of that kind, which is known but not simulated."""
    scenario: tuple[dict[str, Any], ...] = ()
    """Scenario documents, unchanged."""
    origins: tuple[str, ...] = ()
    """Source of each scenario, as it was named; the paths in its `files` are relative to it."""
    lines: tuple[Callable[[Path], int], ...] = ()
    """For each scenario, a function that returns the line of a path in it."""
    included: tuple[str, ...] = ()
    """Files that scenarios name."""
    entries: tuple[LoadedObject, ...] = ()
    """Objects with their documents, including those that scenarios and their steps create."""
    configurations: tuple[Reader, ...] = ()
    """Documents of Kueue's Configurations."""
    ignored: tuple[str, ...] = ()
    """Files of folders that are not manifests."""
    stored: tuple[Mapping[str, Any], ...] = ()
    """If requested, Kueue's objects as its API server would store them, without those that it would refuse."""

    @property
    def has_errors(self) -> bool:
        return any(finding.severity == Severity.ERROR for finding in self.findings)


def last_of_each(entries: Sequence[LoadedObject]) -> list[LoadedObject]:
    """Keep only the last of objects that are given twice, as kubectl apply does, and report the repetitions."""
    last: dict[tuple[str, str, str], LoadedObject] = {}
    for entry in entries:
        key = entry.scope, entry.table, entry.obj.key
        if key in last and not entry.later:
            first = last[key].place
            where = f"{first.report.file} line {first.report.line_of(first.path)}"
            entry.place.report.warning(
                entry.place.at("metadata", "name"),
                f"it is given twice, first in {where}: the last one counts",
                "remove one of them, or rename it",
                "given-twice",
            )
        last[key] = entry
    return list(last.values())


_UNSIMULATED: Mapping[str, tuple[str, ...]] = {
    "": ("ReplicationController",),
    "argoproj.io": ("CronWorkflow", "Workflow"),
    "config.kueue.x-k8s.io": ("Configuration",),
    "karpenter.sh": ("NodeClaim",),
    "scheduling.run.ai": ("PodGroup",),
}
_NO_EFFECT: Mapping[str, tuple[str, ...]] = {
    "": ("ConfigMap", "Endpoints", "Event", "Secret", "Service", "ServiceAccount"),
    "apps": ("ControllerRevision", "DaemonSet"),
    "rbac.authorization.k8s.io": ("ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding"),
    "apiextensions.k8s.io": ("CustomResourceDefinition",),
    "admissionregistration.k8s.io": ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"),
    "networking.k8s.io": ("Ingress", "NetworkPolicy"),
    "storage.k8s.io": ("CSIDriver", "CSIStorageCapacity", "VolumeAttachment", "VolumeAttributesClass"),
    "karpenter.k8s.aws": ("EC2NodeClass",),
    "kustomize.config.k8s.io": ("Kustomization",),
    "nvidia.com": ("ClusterPolicy",),
}


def is_unsimulated(group: str, kind: str) -> bool:
    """True for kinds that create pods or affect their placement, but are not simulated."""
    return kind in _UNSIMULATED.get(group, ())


def has_no_effect(group: str, kind: str) -> bool:
    """True for kinds without effect on queues and placement."""
    return kind in _NO_EFFECT.get(group, ())


def likely_meant(group: str, kind: str, read: Mapping[tuple[str, str], object]) -> str:
    """Return the kind that was probably meant by an unknown one; empty if none is similar."""
    for known_group, known in read:
        if known == kind:
            return f"{known} of {known_group or 'v1'}"
    fellows = [known for known_group, known in read if known_group == group]
    fellows += [*_UNSIMULATED.get(group, ()), *_NO_EFFECT.get(group, ())]
    lower = {known.lower(): known for known in fellows}
    near = get_close_matches(kind[:60].lower(), lower, 1, 0.7)
    return lower[near[0]] if near else ""


_MOST_NAMES = 8


def say_fragment(report: DocumentFindings, value: dict[str, Any], prose: bool) -> None:
    """Report that a document is only a part of a manifest; in prose this is a note, else an error."""
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


MOST_NESTED = 4
MOST_ITEMS = 1_000_000
_SCENARIO = ("steps", "objects", "arrivals", "files")


def is_scenario(document: dict[str, Any]) -> bool:
    """True for a scenario file: it has steps, objects, arrivals or files, but no kind and no apiVersion."""
    return "kind" not in document and "apiVersion" not in document and any(key in document for key in _SCENARIO)


def is_snapshot(document: dict[str, Any]) -> bool:
    """True for the Snapshot of a saved simulation, which has no kind, but objects, time and recent."""
    return "kind" not in document and all(key in document for key in ("objects", "time", "recent"))


def objects_in(place: Reader, depth: int = 0) -> Iterator[Reader]:
    """Yield the objects of a document: itself, or the items of a List kind, each at its own path."""
    kind = place.value.get("kind")
    if not (isinstance(kind, str) and kind.endswith("List") and isinstance(place.value.get("items"), list)):
        yield place
    elif depth < MOST_NESTED:
        for item in place.items("items", MOST_ITEMS):
            yield from objects_in(_with_kind(item, place.value, kind.removesuffix("List")), depth + 1)


def _with_kind(item: Reader, parent: dict[str, Any], kind: str) -> Reader:
    """Return an item with the kind of its typed list (such as `PodList`) if it has none."""
    if "kind" in item or not kind:
        return item
    return item.reporting(item.report, {"apiVersion": parent.get("apiVersion"), "kind": kind, **item.value})


def first_objects(scenario: Reader) -> Iterator[Reader]:
    """Yield the objects with which a scenario starts."""
    for item in scenario.items("objects", MOST_ITEMS):
        yield from objects_in(item)


def later_objects(scenario: Reader) -> Iterator[Reader]:
    """Yield the objects that a scenario's steps create."""
    for step in scenario.items("steps", MOST_ITEMS):
        for item in step.items("create", MOST_ITEMS):
            yield from objects_in(item)


def label(document: Mapping[str, Any], kind: str) -> str:
    """Name a document for messages: `Kind/namespace/name`, without missing parts."""
    metadata = document.get("metadata")
    names = [metadata.get(key) for key in ("namespace", "name")] if isinstance(metadata, dict) else []
    return clean("/".join(filter(None, [kind, *(name for name in names if isinstance(name, str))])), 600)


Members = list[tuple[Job, LoadedObject]]
"""Pods of one pod group, each with the document from which it was read."""


def fold_groups(entries: Sequence[LoadedObject]) -> list[LoadedObject]:
    """Replace the pods of each pod group by one job, in the place of its first pod; report incomplete groups."""
    groups: dict[tuple[str, str, str], Members] = {}
    kept: list[LoadedObject | Members] = []
    for entry in entries:
        obj = entry.obj
        name = group_of(obj) if isinstance(obj, Job) and obj.kind == POD else ""
        if not isinstance(obj, Job) or not name:
            kept.append(entry)
            continue
        members = groups.setdefault((entry.scope, obj.namespace, name), [])
        if not members:
            kept.append(members)
        members.append((obj, entry))
    folded = (item if isinstance(item, LoadedObject) else _fold(item) for item in kept)
    return [entry for entry in folded if entry is not None]


def _fold(members: Members) -> LoadedObject | None:
    pods = [pod for pod, _ in members]
    first = members[0][1]
    name, total = group_of(pods[0]), total_of(first.place) or len(pods)
    report, path = first.place.report, first.place.at("metadata", "labels", GROUP)
    missing = total - len(pods)
    if missing > 0 and pods[0].annotations.get(FAST) != "true":
        report.warning(
            path,
            f"'{name}' group has fewer runnable pods than expected: {len(pods)} of {total}; Kueue waits for the rest, "
            "and the group is not simulated",
            f"add {missing} {'pod' if missing == 1 else 'pods'}, or correct the total count",
            "incomplete-pod-group",
        )
        return None
    if len(pods) > total:
        problem = (
            f"'{name}' group has {len(pods)} pods, {len(pods) - total} more than its total count: they are removed"
        )
        report.warning(path, problem, "correct the total count", "excess-pods")
    return replace(first, obj=pod_group(name, pods, total))


class UnreadDocument(Struct, frozen=True):
    """Document that gave no object, with its position in the input."""

    position: int
    problem: str


def decode_objects(
    documents: Sequence[Mapping[str, Any]], *, now: Time = 0, names: GeneratedNames | None = None
) -> tuple[tuple[Object, ...], tuple[UnreadDocument, ...]]:
    """Read documents as files are read: lists expanded, plain pods with a queue as jobs, pod groups folded.

    Kinds that have no effect or are not simulated are left out, as in files. `names` generates the names of objects
    with a generateName.
    """
    names = names or GeneratedNames(str(now) if now else "")
    entries: list[tuple[int, LoadedObject]] = []
    unread: list[UnreadDocument] = []
    for position, document in enumerate(documents):
        for found in objects_in(Reader(document, Silence())):
            place = found.reporting(found.report, names.named(found.value))
            group, _, kind = kind_of_document(place.value)
            decoder = decoder_of(place)
            obj = None if decoder is None else decoder(place, now)
            if obj is not None and obj.name:
                entries.append((position, LoadedObject(obj=obj, place=place)))
            elif obj is not None:
                unread.append(UnreadDocument(position, f"the {clean(kind, 60)} has no name"))
            elif not (has_no_effect(group, kind) or is_unsimulated(group, kind)):
                unread.append(
                    UnreadDocument(position, f"{clean(kind, 60) or 'an object without kind'} is not simulated")
                )
    objs = tuple(entry.obj for entry in fold_groups([entry for _, entry in entries]))
    return objs, (*unread, *_lost(entries, objs))


def _lost(entries: Sequence[tuple[int, LoadedObject]], objs: Sequence[Object]) -> Iterator[UnreadDocument]:
    """Yield the pods of incomplete groups, which Kueue holds back."""
    groups = {obj.key for obj in objs if isinstance(obj, Job) and obj.kind == POD_GROUP}
    for position, entry in entries:
        pod = entry.obj
        group = group_of(pod) if isinstance(pod, Job) and pod.kind == POD else ""
        if isinstance(pod, Job) and group and f"{POD_GROUP}/{pod.namespace}/{group}" not in groups:
            yield UnreadDocument(position, f"the pod group {group} lacks pods")
