"""Loading of manifests: reads documents into objects, counts the others, and collects findings about each.

Files that a scenario names are relative to the folder of the scenario's own file. ClusterQueues without
namespaceSelector match no namespace; an option lets them admit from every namespace.

The batch scheduler in the configuration of KubeRay's operator decides where the pods of Ray clusters are placed. A
Configuration of config.ray.io (also in a ConfigMap) takes precedence over the arguments of the operator's Deployment,
and those over the values of its Helm chart (KubeRay 1.6 ray-operator/main.go, apis/config/v1alpha1,
helm-chart/kuberay-operator).
"""

import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from gpuconsole.model.apiserver.common_validation import NO_GATES, Gates
from gpuconsole.model.clock import Time
from gpuconsole.model.documents.findings import DocumentFindings, Finding, Severity
from gpuconsole.model.documents.metadata import GeneratedNames
from gpuconsole.model.documents.reader import Reader, kind_of
from gpuconsole.model.documents.sources import (
    UNREADABLE,
    SourceText,
    blocks,
    from_text,
    looks_like_markdown,
    read_sources,
)
from gpuconsole.model.documents.yaml_json import (
    FormError,
    YamlDocument,
    YamlPosition,
    YamlProblem,
    looks_like_json,
    read_json,
    read_yaml,
    sections,
    unwrapped,
)
from gpuconsole.model.jobs.ray import CONFIGURED, DEFAULT_SCHEDULER, RAY_GROUP, RAY_KINDS, VOLCANO, is_of_scheduler
from gpuconsole.model.labels import LabelSelector
from gpuconsole.model.manifests.cross_checks import check
from gpuconsole.model.manifests.decoding import (
    LoadedManifests,
    LoadedObject,
    UnreadReason,
    first_objects,
    fold_groups,
    is_scenario,
    is_snapshot,
    label,
    last_of_each,
    later_objects,
    objects_in,
    say_fragment,
    say_ignored,
    say_unread,
    say_version,
)
from gpuconsole.model.manifests.kinds import decoder_of, kind_of_document, versions_of
from gpuconsole.model.manifests.kueue import NO_SELECTOR
from gpuconsole.model.manifests.webhook_validation import ApiServerValidator
from gpuconsole.model.objects import TABLES, Object
from gpuconsole.model.queues import ClusterQueue
from gpuconsole.model.text import clean


def included(scenario: Reader, origin: str) -> Iterator[SourceText]:
    """Read the files in `files` of a scenario; none if the scenario itself is not in a file.

    A file that cannot be read is reported at the field that names it.
    """
    names = scenario.value.get("files")
    if not isinstance(names, list) or not os.path.isfile(origin):
        return
    for position, name in enumerate(names):
        if isinstance(name, str):
            path = Path(origin).parent / name
            for source in read_sources([path], None):
                problem = next((one.problem for one in source.troubles if one.code == UNREADABLE), "")
                if problem and source.name == str(path):
                    said = f"{clean(name, 200)} {problem.removeprefix('it ')}"
                    scenario.report.error(
                        ("files", position), said, "the path is relative to the folder of the scenario", UNREADABLE
                    )
                else:
                    yield source


def is_same_file(one: str, other: str) -> bool:
    """True if both names are of one existing file."""
    return os.path.exists(one) and os.path.exists(other) and os.path.samefile(one, other)


def admitting_all(obj: Object) -> Object:
    """Return the object; a ClusterQueue without namespaceSelector gets an empty one, which selects all namespaces."""
    if isinstance(obj, ClusterQueue) and obj.namespace_selector is None:
        return replace(obj, namespace_selector=LabelSelector())
    return obj


def noted(finding: Finding) -> Finding:
    """Return the finding; with --admit-all-namespaces a missing namespaceSelector is only a note."""
    if finding.code != NO_SELECTOR:
        return finding
    problem = "it has no namespaceSelector; --admit-all-namespaces lets it admit from every namespace"
    return replace(finding, severity=Severity.NOTE, problem=problem)


GROUP = "config.ray.io"
OPERATOR = (GROUP, "Configuration")
"""(group, kind) of the configuration of KubeRay's operator."""
_CHART = "kuberay-operator"
_IMAGE = "kuberay/operator"
_NAME, _LEGACY = "--batch-scheduler", "--enable-batch-scheduler"


class OperatorConfiguration(Struct, frozen=True):
    """Batch scheduler that one document configures for KubeRay's operator, and the precedence of the document."""

    scheduler: str
    """Name of the batch scheduler in KubeRay; `default` for none."""
    rank: int
    """Precedence; the highest wins: 2 for a Configuration, 1 for arguments, 0 for Helm values."""


def configuration_in(place: Reader) -> OperatorConfiguration | None:
    """Return the configuration of KubeRay's operator in an object; None if it has none."""
    group, _, kind = kind_of_document(place.value)
    if (group, kind) == OPERATOR:
        return _checked(place, place.raw("batchScheduler"), place.raw("enableBatchScheduler"), "batchScheduler", 2)
    if (group, kind) == ("", "ConfigMap"):
        held = _held(place)
        return configuration_in(place.reporting(place.report, held)) if held is not None else None
    return _of_deployment(place) if (group, kind) == ("apps", "Deployment") else None


def configuration_of_values(place: Reader) -> OperatorConfiguration | None:
    """Return the configuration in the values of the operator's Helm chart, or of a chart that contains it; None if
    there is none.
    """
    inner = place.mapping(_CHART) if isinstance(place.raw(_CHART), dict) else place
    said = inner.raw("batchScheduler")
    if not isinstance(said, dict) or not said.keys() <= {"name", "enabled"}:
        return None
    values = inner.mapping("batchScheduler")
    # The chart writes no name where `enabled` is set.
    return _checked(values, "" if values.raw("enabled") else values.raw("name"), values.raw("enabled"), "name", 0)


def _held(place: Reader) -> Mapping[str, Any] | None:
    """Return the Configuration in a ConfigMap, or None."""
    try:
        tree = unwrapped(YamlDocument(place.value, YamlPosition(1, {})), lambda _, text: GROUP in text)
    except FormError:
        return None
    inner = tree.value
    found = isinstance(inner, dict) and inner is not place.value
    return inner if found and kind_of_document(inner)[::2] == OPERATOR else None


def _of_deployment(place: Reader) -> OperatorConfiguration | None:
    for container in place.down("spec", "template", "spec").items("containers", 100):
        args = [str(arg) for key in ("command", "args") for arg in _list(container.raw(key))]
        flags = {name: value for name, _, value in (arg.partition("=") for arg in args)}
        is_operator = _IMAGE in str(container.raw("image") or "") or _NAME in flags or _LEGACY in flags
        if is_operator and "--config" not in flags:
            legacy = flags.get(_LEGACY, "false") in ("", "true", "1", "t")
            return _checked(container, flags.get(_NAME, ""), legacy, "args", 1)
    return None


def _list(value: object) -> Sequence[object]:
    return value if isinstance(value, list) else ()


def _checked(place: Reader, name: object, legacy: object, key: str, rank: int) -> OperatorConfiguration | None:
    """Return the configuration; None if the operator would refuse it, which is reported
    (ValidateBatchSchedulerConfig).
    """
    name = str(name or "")
    if name and legacy:
        problem = "do not use both options together: batch-scheduler and enable-batch-scheduler"
        place.report.error(place.at(key), problem, "drop the old one, enable-batch-scheduler", "kuberay-scheduler")
        return None
    name = name or (VOLCANO if legacy else DEFAULT_SCHEDULER)
    if name not in CONFIGURED:
        problem = f"scheduler is not supported, name={name}: KubeRay's operator does not start"
        known = ", ".join(CONFIGURED)
        place.report.error(place.at(key), problem, f"write one of {known}", "kuberay-scheduler")
        return None
    return OperatorConfiguration(name, rank)


CONFIGURATION = ("config.kueue.x-k8s.io", "Configuration")
"""(group, kind) of Kueue's configuration."""
NO_MANIFEST = "no-manifest"
"""Code of the finding that a file has no document."""


def load(
    sources: Sequence[str | Path],
    *,
    strict: bool = False,
    stdin: str | None = None,
    now: Time = 0,
    admit_all_namespaces: bool = False,
    gates: Gates = NO_GATES,
    over: Sequence[str | Path] = (),
    keep_stored: bool = False,
    names: GeneratedNames | None = None,
    ignore: Sequence[str] = (),
) -> LoadedManifests:
    """Read files, folders and `-` (the text of `stdin`), and report what is wrong; nothing is raised.

    `strict` makes refusals by the API server errors. `admit_all_namespaces` gives ClusterQueues without a
    namespaceSelector an empty one. `gates` are Kueue's feature gates that differ from their defaults. `over` names
    manifests that exist already: they are not reported or returned, objects may refer to them, and objects of the same
    name update them. `keep_stored` also returns Kueue's objects as its API server would store them. `names` generates
    the names of objects with a generateName. Files that match a glob of `ignore` are left out.
    """
    loading = _Loading(strict, now, gates, names)
    for source in read_sources(over, None):
        loading.read(source)
    loading.begin()
    for source in read_sources(sources, stdin, ignore):
        loading.read(source)
    loading.include()
    return loading.finish(admit_all_namespaces, keep_stored)


def load_text(
    text: str,
    name: str = "<text>",
    *,
    strict: bool = False,
    now: Time = 0,
    admit_all_namespaces: bool = False,
    gates: Gates = NO_GATES,
    names: GeneratedNames | None = None,
) -> LoadedManifests:
    """Read manifests from a string; see `load`."""
    loading = _Loading(strict, now, gates, names)
    loading.read(from_text(text, name))
    return loading.finish(admit_all_namespaces)


class _Loading:
    """Collects objects and findings from many sources. Mutable; `finish` is called once."""

    def __init__(self, strict: bool, now: Time, gates: Gates, names: GeneratedNames | None = None) -> None:
        # Objects that are submitted at different times get different generated names.
        self._names = names or GeneratedNames(str(now) if now else "")
        self._strict = strict
        self._now = now
        self._judge = ApiServerValidator(gates)
        self._reports: list[DocumentFindings] = []
        self._entries: list[LoadedObject] = []
        self._surrounding: list[LoadedObject] = []
        self._unknown: Counter[str] = Counter()
        self._unsimulated: Counter[str] = Counter()
        self._scenarios: list[Reader] = []
        self._origins: list[str] = []
        self._included: list[str] = []
        self._configurations: list[Reader] = []
        self._ignored: dict[str, list[str]] = {}
        """Folder → its files that are not manifests."""
        self._operator: OperatorConfiguration | None = None
        """Configuration of KubeRay's operator with the highest precedence so far."""
        self._including = ""
        """The scenario whose files are being read."""

    def _report(self, source: str, document: int, tree: YamlDocument) -> DocumentFindings:
        report = DocumentFindings(clean(source, 1000), document, strict=self._strict, line_of=tree.place.find)
        self._reports.append(report)
        return report

    def _say(self, source: str, document: int, trouble: YamlProblem, severity: Severity = Severity.ERROR) -> None:
        report = DocumentFindings(clean(source, 1000), document, line_of=lambda path: trouble.line)
        self._reports.append(report)
        report.add(severity, trouble.path, trouble.problem, trouble.remedy, trouble.code)

    def read(self, source: SourceText) -> None:
        """Read a source, document by document."""
        if source.ignored_in:
            self._ignored.setdefault(source.ignored_in, []).append(source.name)
            self._read_values(source)
            return
        for trouble in source.troubles:
            self._say(source.name, 1, trouble)
        before = len(self._reports)
        try:
            self._read(source)
        except FormError as error:
            self._say(source.name, 1, error.problem)
        if len(self._reports) == before and not source.troubles:
            trouble = YamlProblem(
                1, "it holds no manifest", "a manifest begins with apiVersion: and kind:", NO_MANIFEST
            )
            self._say(source.name, 1, trouble, Severity.NOTE)

    def _read_values(self, source: SourceText) -> None:
        """Look for the values of KubeRay's Helm chart in a file that is not a manifest."""
        if "batchScheduler" not in source.text:
            return
        try:
            tree = read_yaml(source.text, 1)
        except FormError:
            return
        if isinstance(tree.value, dict):
            self._configure_operator(configuration_of_values(Reader(tree.value, self._report(source.name, 1, tree))))

    def _configure_operator(self, found: OperatorConfiguration | None) -> None:
        if found is not None and (self._operator is None or found.rank >= self._operator.rank):
            self._operator = found

    def _read(self, source: SourceText) -> None:
        trees = read_json(source.text) if looks_like_json(source.text) else None
        if trees is not None:
            for number, tree in enumerate(trees, start=1):
                self._document(source.name, number, tree)
        elif source.is_prose or (not source.is_manifest and looks_like_markdown(source.text)):
            self._prose(source)
        else:
            for number, (text, line) in enumerate(sections(source.text), start=1):
                self._section(source.name, number, text, line)

    def _prose(self, source: SourceText) -> None:
        number = 0
        for block in blocks(source.text):
            for text, line in sections(block.text):
                number += 1
                self._section(source.name, number, text, block.line + line - 1, part=block.is_fragment)

    def _section(self, source: str, number: int, text: str, line: int, *, part: bool | None = None) -> None:
        """Read one YAML document. `part` is None outside of prose; in prose it tells if the block is a fragment."""
        try:
            tree = read_yaml(text, line)
        except FormError as error:
            if not part:
                self._say(source, number, error.problem)
            return
        for trouble in () if part else tree.troubles:
            self._say(source, number, trouble)
        self._document(source, number, tree, prose=part is not None)

    def _document(self, source: str, number: int, tree: YamlDocument, *, prose: bool = False) -> None:
        value = tree.value
        if value is None:
            return
        report = self._report(source, number, tree)
        root = Reader(value, report)
        if not isinstance(value, dict):
            problem = f"expected an object, found {kind_of(value)}"
            report.error((), problem, "write an object (apiVersion:, kind:), or a scenario (steps:)", "not-an-object")
        elif is_snapshot(value):
            problem = "this is a saved snapshot, not a manifest"
            report.error((), problem, "open it with --snapshot FILE", "snapshot")
        elif is_scenario(value):
            self._scenario(source, root)
        elif "kind" in value and "apiVersion" in value:
            for place in objects_in(root):
                self._object(place)
        elif (operator := configuration_of_values(root)) is not None:
            self._configure_operator(operator)
        else:
            say_fragment(report, value, prose)

    def _scenario(self, source: str, root: Reader) -> None:
        """Keep a scenario unchanged and check its objects, which it creates itself when it runs."""
        if self._including:
            problem = "a scenario in the files of a scenario is ignored"
            root.report.warning((), problem, "name it on the command line, or move its objects", "nested-scenario")
            return
        self._scenarios.append(root)
        self._origins.append(source)
        for place in first_objects(root):
            self._object(place, scope=source)
        for place in later_objects(root):
            self._object(place, scope=source, later=True)

    def begin(self) -> None:
        """Treat everything read so far as existing objects, about which nothing is reported."""
        self._surrounding, self._entries = self._entries, []
        for collected in (self._reports, self._scenarios, self._origins, self._configurations, self._ignored):
            collected.clear()
        self._judge.begin()

    def include(self) -> None:
        """Read the files that scenarios name; each scenario creates their objects itself when it runs."""
        for scenario, origin in zip(list(self._scenarios), list(self._origins), strict=True):
            self._including = origin
            for source in included(scenario, origin):
                self._included.append(source.name)
                self._leave_to_scenario(source.name)
                self.read(source)

    def _leave_to_scenario(self, file: str) -> None:
        """Drop the objects of a file that was also read on its own, because the scenario creates them."""
        read = {name for name in {entry.place.report.file for entry in self._entries} if is_same_file(name, file)}
        self._entries = [entry for entry in self._entries if entry.scope or entry.place.report.file not in read]

    def _object(self, place: Reader, *, scope: str = "", later: bool = False) -> None:
        group, version, kind = kind_of_document(place.value)
        document = self._names.named(place.value, scope or self._including)
        report = place.report.about(label(document, kind))
        self._reports.append(report)
        place = place.reporting(report, document)
        decoder = decoder_of(place)
        if (group, kind) == CONFIGURATION:
            self._configurations.append(place)
            return
        self._configure_operator(configuration_in(place))
        if (group, kind) == OPERATOR:
            return
        scope = scope or self._including
        if decoder is None:
            self._judge.refusals_of_job(place, scope, anew=later)
            self._not_read(place, group, kind)
            return
        if version not in versions_of(group, kind):
            say_version(place, group, version, kind)
        obj = self._judge.read(place, decoder, self._now, scope, anew=later)
        if obj.name:
            self._entries.append(LoadedObject(obj=obj, place=place, keep=not scope, scope=scope, later=later))

    def _scheduled(self, entry: LoadedObject) -> LoadedObject:
        """Return a Ray job or cluster with the batch scheduler in the configuration of KubeRay's operator, if known."""
        group, _, kind = kind_of_document(entry.place.value)
        decoder = RAY_KINDS.get(kind) if group == RAY_GROUP else None
        if decoder is None or self._operator is None:
            return entry
        report, own = entry.place.report, entry.place.report.about(entry.place.report.object)
        place = entry.place.reporting(own, entry.place.value)
        obj = decoder(place, self._now, self._operator.scheduler)
        # Findings about another scheduler than the configured one do not apply.
        report.findings[:] = [one for one in report.findings if not is_of_scheduler(one)]
        report.findings += filter(is_of_scheduler, own.findings)
        return replace(entry, obj=obj)

    def _not_read(self, place: Reader, group: str, kind: str) -> None:
        """Count and report a document that is not read."""
        name = clean(f"{kind} ({group})" if group else kind, 200)
        counted = {UnreadReason.UNSIMULATED: self._unsimulated, UnreadReason.UNKNOWN: self._unknown}.get(
            say_unread(place, group, kind, name)
        )
        if counted is not None:
            counted[name] += 1

    def finish(self, admit_all: bool, keep_stored: bool = False) -> LoadedManifests:
        """Fold pod groups, drop objects that are given twice, and check references between objects."""
        for folder, ignored in self._ignored.items():
            report = DocumentFindings(clean(folder, 1000))
            self._reports.append(report)
            say_ignored(report, [os.path.relpath(file, folder) for file in ignored])
        entries = last_of_each(fold_groups([self._scheduled(entry) for entry in self._entries]))
        new = {(entry.table, entry.obj.key) for entry in entries if not entry.scope}
        check([*(entry for entry in self._surrounding if (entry.table, entry.obj.key) not in new), *entries])
        # A file that several scenarios name has the same findings each time.
        findings = list(dict.fromkeys(finding for report in self._reports for finding in report.findings))
        objects = [entry.obj for entry in entries if entry.keep]
        if admit_all:
            objects = [admitting_all(obj) for obj in objects]
            findings = [noted(finding) for finding in findings]
        order = {kind: position for position, kind in enumerate(TABLES)}
        files = {name: n for n, name in enumerate(dict.fromkeys(report.file for report in self._reports))}
        return LoadedManifests(
            objects=tuple(sorted(objects, key=lambda obj: order[type(obj)])),
            findings=tuple(sorted(findings, key=lambda f: (files[f.file], f.line, f.document))),
            unknown=dict(sorted(self._unknown.items())),
            known_unsimulated=dict(sorted(self._unsimulated.items())),
            scenario=tuple(root.value for root in self._scenarios),
            origins=tuple(self._origins),
            lines=tuple(root.report.line_of for root in self._scenarios),
            included=tuple(self._included),
            entries=tuple(entries),
            configurations=tuple(self._configurations),
            ignored=tuple(file for ignored in self._ignored.values() for file in ignored),
            stored=self._judge.stored() if keep_stored else (),
        )
