"""Objects read as an API server with Kueue would store them, with its refusals in its own words.

Objects of v1beta1 are first converted to v1beta2, which renames and moves some fields (Kueue 0.19 apis/kueue/v1beta1);
findings keep the paths of the original document.
"""

from collections.abc import Callable, Mapping
from difflib import get_close_matches
from typing import Any

from msgspec import Struct

from gpuconsole.model.apiserver import KINDS, NOT_CHECKED, ApiKind, WriteResult, create, hidden, update
from gpuconsole.model.apiserver.common_validation import Gates
from gpuconsole.model.apiserver.jobs import JOB_KINDS, as_stored, check_job
from gpuconsole.model.apiserver.schema import Schema, with_defaults
from gpuconsole.model.apiserver.writes import GROUP
from gpuconsole.model.clock import Time
from gpuconsole.model.documents.findings import DocumentFindings, FieldError, Path, Severity, path_text
from gpuconsole.model.documents.reader import Reader, shown
from gpuconsole.model.manifests.kinds import Decoder, kind_of_document
from gpuconsole.model.objects import Object

_V1BETA1 = "kueue.x-k8s.io/v1beta1"
Spec = dict[str, Any]
Moved = dict[Path, Path]
"""New path of each moved field → its path in the original document."""
_CLASS_SOURCES = {
    "kueue.x-k8s.io/workloadpriorityclass": ("kueue.x-k8s.io", "WorkloadPriorityClass"),
    "scheduling.k8s.io/priorityclass": ("scheduling.k8s.io", "PriorityClass"),
}


class Converted(Struct, frozen=True):
    """A document in the newest version, with the original paths of its parts."""

    document: Mapping[str, Any]
    moved: Mapping[Path, Path] = {}
    """New path of each moved field → its path in the original document."""

    def origin(self, path: Path) -> Path:
        """Return the path in the original document of a path in the converted one."""
        for new, old in self.moved.items():
            if path[: len(new)] == new:
                return old + path[len(new) :]
        return path


def is_v1beta1(document: Mapping[str, Any]) -> bool:
    """True if a document of Kueue's API is v1beta1."""
    return document.get("apiVersion") == _V1BETA1


def to_newest(document: Mapping[str, Any], kind: str) -> Converted:
    """Rename the fields of an older version; fields without a successor are dropped."""
    spec = document.get("spec")
    change = _CHANGES.get(kind)
    if not is_v1beta1(document) or change is None or not isinstance(spec, dict):
        return Converted(document)
    new = dict(spec)
    moved = change(new)
    return Converted({**document, "spec": new}, moved)


def _renamed(spec: Spec, old: str, new: str) -> Moved:
    if old not in spec:
        return {}
    spec[new] = spec.pop(old)
    return {("spec", new): ("spec", old)}


def _queue(spec: Spec) -> Moved:
    moved = _renamed(spec, "cohort", "cohortName")
    checks = spec.pop("admissionChecks", None)
    if isinstance(checks, list) and checks:
        listed: Path = ("spec", "admissionChecksStrategy", "admissionChecks")
        spec["admissionChecksStrategy"] = {"admissionChecks": [{"name": check} for check in checks]}
        moved |= {(*listed, n, "name"): ("spec", "admissionChecks", n) for n in range(len(checks))}
        moved[listed] = ("spec", "admissionChecks")
    fungibility = spec.get("flavorFungibility")
    if isinstance(fungibility, dict):
        older = {"whenCanBorrow": "Borrow", "whenCanPreempt": "Preempt"}
        spec["flavorFungibility"] = {
            key: "MayStopSearch" if older.get(key) == word else word for key, word in fungibility.items()
        }
    return moved


def _workload(spec: Spec) -> Moved:
    source, name = spec.pop("priorityClassSource", ""), spec.pop("priorityClassName", "")
    if source not in _CLASS_SOURCES:
        return {}
    group, kind = _CLASS_SOURCES[source]
    spec["priorityClassRef"] = {"group": group, "kind": kind, "name": name}
    return {
        ("spec", "priorityClassRef", "name"): ("spec", "priorityClassName"),
        ("spec", "priorityClassRef"): ("spec", "priorityClassSource"),
    }


def _cluster(spec: Spec) -> Moved:
    source = {key: spec.pop(key) for key in ("kubeConfig", "clusterProfileRef") if key in spec}
    spec["clusterSource"] = source
    return {("spec", "clusterSource"): ("spec",)}


def _check(spec: Spec) -> Moved:
    spec.pop("retryDelayMinutes", None)
    return {}


_CHANGES: Mapping[str, Callable[[Spec], Moved]] = {
    "ClusterQueue": _queue,
    "Cohort": lambda spec: _renamed(spec, "parent", "parentName"),
    "Workload": _workload,
    "MultiKueueCluster": _cluster,
    "AdmissionCheck": _check,
}


Document = Mapping[str, Any]
Key = tuple[str, str, str]
"""Scope, kind and name of an object."""


class _Own(DocumentFindings):
    """Findings while reading an object. The API server's errors take precedence; these add remedies."""

    def __init__(self, like: DocumentFindings) -> None:
        super().__init__(like.file, like.document, line_of=like.line_of)
        self.object = like.object
        self.advice: dict[str, tuple[str, str]] = {}
        """Path → remedy and code."""

    def refused(self, path: Path, problem: str, remedy: str, code: str) -> None:
        """Keep remedy and code for the API server's error about this path."""
        self.advice.setdefault(path_text(path), (remedy, code))

    def errors(self) -> dict[str, tuple[str, str]]:
        """Map paths of unusable values to remedy and code."""
        return {f.path: (f.remedy, f.code) for f in self.findings if f.severity is Severity.ERROR}


class ApiServerReview(Struct, frozen=True):
    """Result of the API server's checks of a document."""

    verdict: WriteResult
    converted: Converted
    """The document in the newest version."""
    defaulted: Document
    """The converted document with defaults, and without unknown fields."""
    refusals: tuple[FieldError, ...]
    """All reasons to refuse it, including those that the server would report only later."""
    status: tuple[FieldError, ...] = ()
    """Errors in its status, which the server would validate in a later write."""


class ApiServerValidator:
    """Validates one document after another. Mutable: keeps the objects that would be stored so far."""

    def __init__(self, gates: Gates) -> None:
        self._gates = gates
        self._stored: dict[Key, Document] = {}
        self._jobs: dict[Key, Document] = {}
        self._before: dict[Key, Document] = {}

    def begin(self) -> None:
        """Treat all objects read so far as already stored in the cluster; what follows is new input."""
        self._before, self._stored, self._jobs = self._stored | self._jobs, {}, {}

    def stored(self) -> tuple[Document, ...]:
        """Return the accepted objects of Kueue's API that were read since `begin`, as they would be stored."""
        return tuple(self._stored.values())

    def read(self, place: Reader, decoder: Decoder, now: Time, scope: str = "", *, anew: bool = False) -> Object:
        """Read an object and report its errors; kinds outside Kueue's API are only read.

        A second document of an object in one scope is an update, as with kubectl apply, unless it is created `anew`.
        """
        group, _, name = kind_of_document(place.value)
        key, old = self._known(place, scope, anew)
        kind = KINDS.get(name) if group == GROUP else None
        if kind is None:
            return self._read_job(place, decoder, now, self.refusals_of_job(place, scope, anew=anew))
        review = judge(place, kind, self._gates, old)
        if review.verdict.accepted and _metadata(place).get("name"):
            self._stored[key] = review.verdict.stored
        return read_validated(place, decoder, now, review)

    def _known(self, place: Reader, scope: str, anew: bool) -> tuple[Key, Document | None]:
        """Return a document's key and the document that it replaces."""
        group, _, name = kind_of_document(place.value)
        meta = _metadata(place)
        key = scope, f"{name}.{group}", f"{meta.get('namespace') or 'default'}/{meta.get('name')}"
        return key, None if anew else (self._stored.get(key) or self._jobs.get(key) or self._before.get(key))

    def refusals_of_job(self, place: Reader, scope: str = "", *, anew: bool = False) -> set[str]:
        """Report what Kueue's webhooks refuse in a job, and return the fields concerned."""
        group, _, name = kind_of_document(place.value)
        if (group, name) not in JOB_KINDS:
            return set()
        key, old = self._known(place, scope, anew)
        job = as_stored(group, name, place.value, old, gates=self._gates)
        refusals = check_job(group, name, job, old, gates=self._gates)
        if not refusals:
            self._jobs[key] = job
        for refusal in refusals:
            place.report.refused(place.at(*refusal.path), refusal.problem, refusal.advice, refusal.word)
        return {path_text(place.at(*refusal.path)) for refusal in refusals}

    def _read_job(self, place: Reader, decoder: Decoder, now: Time, reported: set[str]) -> Object:
        """Read a job of another API, without repeating reported findings."""
        if not reported:
            return decoder(place, now)
        own = place.report.about(place.report.object)
        obj = decoder(place.reporting(own, place.value), now)
        for finding in own.findings:
            if finding.path not in reported:
                place.report.keep(finding)
        return obj


def _metadata(place: Reader) -> Document:
    meta = place.value.get("metadata")
    return meta if isinstance(meta, dict) else {}


def judge(place: Reader, kind: ApiKind, gates: Gates, old: Document | None = None) -> ApiServerReview:
    """Validate a document that is new or replaces `old`; dropped fields are reported immediately.

    A namespaced object without a namespace goes to `default`, as with kubectl.
    """
    converted = _in_newest(place.value, kind)

    def unknown(path: Path, schema: Schema) -> None:
        if path[0] != "status":
            _say_unknown(place, converted.origin(path), schema)

    defaulted = with_defaults(kind.schema, converted.document, unknown)
    verdict = create(kind, defaulted, gates=gates) if old is None else update(kind, defaulted, old, gates=gates)
    known = [refusal for refusal in verdict.refusals if refusal.code != NOT_CHECKED]
    refusals = (*known, *hidden(kind, verdict, old, gates=gates))
    return ApiServerReview(verdict, converted, defaulted, refusals, _status_refusals(kind, verdict, defaulted, gates))


def _status_refusals(kind: ApiKind, verdict: WriteResult, document: Document, gates: Gates) -> tuple[FieldError, ...]:
    """Validate the status as a separate write: apply drops it, but the simulation reads it."""
    if not (verdict.accepted and kind.has_status and document.get("status")) or is_v1beta1(document):
        return ()
    later = update(kind, document, verdict.stored, status=True, gates=gates)
    return tuple(refusal for refusal in later.refusals if refusal.path[:1] == ("status",))


def _in_newest(document: Document, kind: ApiKind) -> Converted:
    converted = to_newest(document, kind.name)
    meta = converted.document.get("metadata")
    if not kind.namespaced or not isinstance(meta, dict) or meta.get("namespace") not in (None, ""):
        return converted
    return Converted({**converted.document, "metadata": {**meta, "namespace": "default"}}, converted.moved)


def _say_unknown(place: Reader, path: Path, schema: Schema) -> None:
    key = str(path[-1])
    near = get_close_matches(key[:60], schema.fields, 1)
    remedy = f"did you mean {near[0]}?" if near else f"it takes {', '.join(schema.fields)}"
    place.report.refused(place.at(*path), f"unknown field {shown(path[-1])} is ignored", remedy, "unknown-field")


def read_validated(place: Reader, decoder: Decoder, now: Time, review: ApiServerReview) -> Object:
    """Read an object as it would be stored, and report refusals, then other findings.

    A refused object is read as far as possible. The status is that of the document, because the server takes it in a
    separate write.
    """
    own = _Own(place.report)
    document = dict(review.defaulted)
    if "status" in place.value:
        document["status"] = place.value["status"]
    obj = decoder(place.reporting(own, document), now)
    for warning in review.verdict.warnings:
        place.report.warning(place.path, warning, "correct it before that release", "deprecated")
    reported = _report_refusals(place, review, own)
    for finding in own.findings:
        if finding.path not in reported:
            place.report.keep(finding)
    return obj


def _report_refusals(place: Reader, review: ApiServerReview, own: _Own) -> set[str]:
    """Report refusals, and return the fields concerned. Unusable values are errors in any case."""
    reported: set[str] = set()
    errors = own.errors()
    strict = Severity.ERROR if place.report.strict else Severity.WARNING
    status_findings = ((refusal, Severity.WARNING) for refusal in review.status)
    for refusal, severity in (*((refusal, strict) for refusal in review.refusals), *status_findings):
        path = place.at(*refusal.path)
        names = path_text(path), path_text((*path, *refusal.deeper))
        unusable = next((errors[name] for name in names if name in errors), None)
        remedy, code = unusable or own.advice.get(names[0]) or (refusal.advice, refusal.word)
        origin, deepest = (review.converted.origin((*refusal.path, *more)) for more in ((), refusal.deeper))
        place.report.add(
            Severity.ERROR if unusable else severity,
            place.at(*origin),
            refusal.problem,
            remedy,
            code,
            deeper=deepest[len(origin) :] if deepest[: len(origin)] == origin else (),
        )
        reported |= set(names)
    return reported
