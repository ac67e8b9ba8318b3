"""Checks between objects: missing references, cycles, and queues that do not admit a workload.

Besides Kueue's objects, KAI's are checked for missing queues and topologies and for queues that take no jobs, and
Volcano's as by its webhooks for queues and jobs.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from gpuconsole.model.apiserver.jobs.webhooks import DEFAULT_QUEUE
from gpuconsole.model.apiserver.volcano import jobs, queues_and_pod_groups
from gpuconsole.model.apiserver.volcano.queues_and_pod_groups import (
    QUEUE_SHAPE,
    among,
    check_group_queue,
    check_hierarchy,
    fits,
    report,
)
from gpuconsole.model.cluster import SYSTEM_PRIORITIES, Namespace, PriorityClass
from gpuconsole.model.documents.findings import Path, Severity
from gpuconsole.model.documents.reader import Reader
from gpuconsole.model.job import CLUSTER_WIDE, SHIPPED, CronRules, FlowRules, Job, TrainRules
from gpuconsole.model.jobs.workloads import PRIORITY_CLASS, QUEUE
from gpuconsole.model.kai import KaiPodGroup, KaiQueue
from gpuconsole.model.labels import NAMESPACE_NAME
from gpuconsole.model.manifests.decoding import LoadedObject
from gpuconsole.model.objects import MOST_LEVELS, parent_of, too_deep
from gpuconsole.model.queues import ClusterQueue, Cohort, LocalQueue, ResourceFlavor
from gpuconsole.model.volcano import PodGroup, VolcanoQueue
from gpuconsole.model.workloads import Workload

FIELDS = {
    "cohorts": ("parentName", "cohort"),
    "volcano_queues": ("parent", "queue"),
    "kai_queues": ("parentQueue", "queue"),
}
"""Table → field of `spec` that names the parent, and the word for such an object in messages."""


def check_ancestors(entries: Mapping[str, LoadedObject], field: str, what: str) -> None:
    """Report cycles in a hierarchy of queues or cohorts, and the first object that is nested too deeply.

    Each cycle is reported at its first member in the input. `field` names the parent; `what` is the word for an object.
    """
    done: set[str] = set()
    for name in entries:
        trail: dict[str, None] = {}
        while name in entries and name not in done:
            if name in trail:
                members = list(trail)[list(trail).index(name) :]
                _say_cycle(members, entries, field, what)
                break
            trail[name] = None
            name = parent_of(entries[name].obj)
        done.update(trail)
    deep = too_deep({name: parent_of(entry.obj) for name, entry in entries.items()})
    if deep:
        place = entries[deep].place
        problem = f"more than {MOST_LEVELS} levels of {what}s lie above {what} {deep}"
        place.report.error(place.at("spec", field), problem, "nest fewer in each other", f"{what}s-too-deep")


def _say_cycle(members: list[str], entries: Mapping[str, LoadedObject], field: str, what: str) -> None:
    first = next(name for name in entries if name in members)
    start = members.index(first)
    shown = [*members[start:], *members[:start]]
    cycle = " → ".join([*shown[:20], *(["…"] if len(shown) > 20 else []), first])
    place = entries[first].place
    place.report.error(
        place.at("spec", field),
        f"{what} {first} is its own ancestor: {cycle}; nothing below it can be admitted",
        f"remove spec.{field} from one {what} of the cycle",
        f"{what}-cycle",
    )


Names = Mapping[str, Mapping[str, LoadedObject]]
"""Loaded objects by table and key."""


def check_kai_queue(queue: KaiQueue, place: Reader, names: Names) -> None:
    """Report a missing parent, and a GPU quota above the limit.

    KAI leaves out queues whose chain of parents does not end at a queue without a parent.
    """
    if queue.parent and queue.parent not in names.get("kai_queues", {}):
        problem = f"KAI Queue {queue.parent} is not defined: KAI leaves this queue out, and all below it"
        _undefined(place, ("spec", "parentQueue"), problem, f"define a Queue {queue.parent}, or leave the parent out")
    limit, quota = queue.gpu.limit, queue.gpu.quota
    if limit != -1 and (quota > limit or quota == -1):
        problem = f"its quota of GPUs, {quota:g}, is above its limit, {limit:g}: it never gets more than the limit"
        place.report.note(place.at("spec", "resources", "gpu"), problem, "raise the limit, or lower the quota", "quota")


def check_kai_group(group: KaiPodGroup, place: Reader, names: Names) -> None:
    """Report a queue that is missing or takes no jobs, and missing topologies."""
    check_queue_for_jobs(group.queue, place, ("spec", "queue"), names)
    for path, constraint in (
        (("spec", "topologyConstraint"), group.constraint),
        *(((*("spec", "subGroups"), n, "topologyConstraint"), s.constraint) for n, s in enumerate(group.sub_groups)),
    ):
        if constraint is not None and constraint.topology and constraint.topology not in names.get("topologies", {}):
            problem = f"Requested topology {constraint.topology} does not exist"
            _undefined(place, (*path, "topology"), problem, f"define a Topology {constraint.topology}")


def check_queue_for_jobs(name: str, place: Reader, path: Path, names: Names) -> None:
    """Report a KAI queue that is missing or has child queues: only leaf queues take jobs."""
    queues = names.get("kai_queues", {})
    if not queues and name:
        # The queues may be defined elsewhere.
        remedy = f"define a Queue {name}, or name another one"
        place.report.note(place.at(*path), f"Queue '{name}' does not exist", remedy, "undefined-kai")
    elif name not in queues:
        _undefined(place, path, f"Queue '{name}' does not exist", f"define a Queue {name}, or name another one")
    elif any(isinstance(e.obj, KaiQueue) and e.obj.parent == name for e in queues.values()):
        problem = f"KAI Queue {name} has queues below it: it takes no jobs"
        place.report.warning(place.at(*path), problem, "name one of the queues below it", "kai-queue-with-children")


def _undefined(place: Reader, path: Path, problem: str, remedy: str) -> None:
    place.report.warning(place.at(*path), problem, remedy, "undefined-kai")


Document = Mapping[str, Any]
BUILT_IN: Mapping[str, Document] = {
    name: {"metadata": {"name": name}, "status": {"state": "Open"}} for name in ("default", "root")
}
"""Queues that Volcano creates itself."""


def known_queues(entries: Mapping[str, LoadedObject]) -> dict[str, Document]:
    """Return Volcano's queues in the input and its built-in ones, as its controller initializes them: open unless they
    state otherwise.
    """
    found = dict(BUILT_IN)
    for name, entry in entries.items():
        document = entry.place.value
        if fits(document, QUEUE_SHAPE):
            status = {"state": "Open", **(document.get("status") or {})}
            found[name] = {**document, "status": status}
    return found


def check_volcano_queue(place: Reader, queues: Mapping[str, Document]) -> None:
    """Report errors in a Volcano Queue's annotations, parent, depth and amounts; if its parent is missing, only in its
    annotations.
    """
    document = place.value
    if not fits(document, QUEUE_SHAPE):
        return
    report(place.report, place.path, check_hierarchy(document, queues))
    if queues_and_pod_groups.parent_of(document) in ("", *queues):
        report(place.report, place.path, among(document, queues))


def check_queue_of_job(place: Reader, queues: Mapping[str, Document]) -> None:
    """Report a Volcano Job's queue that is missing, not open, or has child queues."""
    spec = {"queue": "default", **place.mapping("spec").value}
    report(place.report, place.path, jobs.check_queue({"spec": spec}, queues))


def check_queue_of_group(place: Reader, queues: Mapping[str, Document]) -> None:
    """Report the queue of a Volcano PodGroup that is missing or not open."""
    report(place.report, place.path, check_group_queue({"spec": place.mapping("spec").value}, queues))


_VOLCANO = ("VolcanoJob", "VolcanoCronJob", "JobTemplate")
"""Kinds whose pods go to a queue of Volcano, not of Kueue."""


def check(entries: Sequence[LoadedObject]) -> None:
    """Report missing references and other contradictions between objects, at the object that refers to the other.

    The objects of a scenario are checked together with those outside of all scenarios.
    """
    cluster_entries = [entry for entry in entries if not entry.scope]
    _check_scope(cluster_entries, cluster_entries)
    for scope in dict.fromkeys(entry.scope for entry in entries if entry.scope):
        own = [entry for entry in entries if entry.scope == scope]
        _check_scope(own, [*cluster_entries, *own])


def _check_scope(own: Sequence[LoadedObject], known: Sequence[LoadedObject]) -> None:
    names: dict[str, dict[str, LoadedObject]] = {}
    for entry in known:
        names.setdefault(entry.table, {})[entry.obj.key] = entry
    for entry in own:
        _check(entry, names)
    for table, (field, what) in FIELDS.items():
        check_ancestors(names.get(table, {}), field, what)
    _check_defaults(names.get("priority_classes", {}).values())


def _check(entry: LoadedObject, names: Names) -> None:
    place = entry.place
    match entry.obj:
        case ClusterQueue() as queue:
            _check_cluster_queue(queue, place, names)
        case Cohort() as cohort:
            _check_flavors(cohort, place, names)
        case LocalQueue() as queue:
            _check_local_queue(queue, place, names)
        case ResourceFlavor(topology=name) if name:
            _defined(name, "topologies", "Topology", names, place, ("spec", "topologyName"), "the flavor is unusable")
        case Job() as job:
            _check_job(job, place, names)
        case Workload() as workload:
            _check_workload(workload, place, names)
        case VolcanoQueue(parent=parent):
            if parent not in ("", "root"):
                effect = "it has no parent"
                _defined(parent, "volcano_queues", "Volcano Queue", names, place, ("spec", "parent"), effect)
            check_volcano_queue(place, known_queues(names.get("volcano_queues", {})))
        case KaiQueue() as queue:
            check_kai_queue(queue, place, names)
        case KaiPodGroup() as group:
            check_kai_group(group, place, names)
        case PodGroup(queue=name) if name:
            check_queue_of_group(place, known_queues(names.get("volcano_queues", {})))


def _defined(
    name: str,
    table: str,
    kind: str,
    names: Names,
    place: Reader,
    path: Path,
    effect: str,
    severity: Severity = Severity.WARNING,
) -> bool:
    """True if an object is in the input; a missing one is reported."""
    if name in names.get(table, {}):
        return True
    short = name.rpartition("/")[2]
    place.report.add(
        severity,
        place.at(*path),
        f"{kind} {short} is not defined: {effect}",
        f"define it, or name one of: {_some(names.get(table, {}))}" if names.get(table) else f"define a {kind} {short}",
        "undefined-" + kind.lower().replace(" ", "-"),
    )
    return False


def _some(keys: Iterable[str]) -> str:
    listed = sorted(keys)
    return ", ".join(listed[:5]) + (", …" if len(listed) > 5 else "")


def _check_flavors(obj: ClusterQueue | Cohort, place: Reader, names: Names) -> None:
    effect = (
        "Kueue keeps the queue inactive until it exists"
        if isinstance(obj, ClusterQueue)
        else "the cohort has no quota of it until it exists"
    )
    for g, group in enumerate(obj.resource_groups):
        for f, flavor in enumerate(group.flavors):
            path = ("spec", "resourceGroups", g, "flavors", f, "name")
            if flavor.name:
                _defined(flavor.name, "flavors", "ResourceFlavor", names, place, path, effect)


def _check_cluster_queue(queue: ClusterQueue, place: Reader, names: Names) -> None:
    _check_flavors(queue, place, names)
    older = "admissionChecksStrategy" not in place.mapping("spec")
    for n, rule in enumerate(queue.checks):
        path = ("spec", "admissionChecks", n) if older else ("spec", "admissionChecksStrategy", "admissionChecks", n)
        effect = "Kueue keeps the queue inactive until it exists"
        _defined(rule.name, "admission_checks", "AdmissionCheck", names, place, path, effect)


def _check_local_queue(queue: LocalQueue, place: Reader, names: Names) -> None:
    path: Path = ("spec", "clusterQueue")
    effect = "Can't submit new workloads to clusterQueue"
    if not queue.cluster_queue or not _defined(
        queue.cluster_queue, "cluster_queues", "ClusterQueue", names, place, path, effect
    ):
        return
    target = names["cluster_queues"][queue.cluster_queue].obj
    namespace = names.get("namespaces", {}).get(queue.namespace)
    known = namespace.obj if namespace is not None else None
    labels = known.labels if isinstance(known, Namespace) else {NAMESPACE_NAME: queue.namespace}
    selector = target.namespace_selector if isinstance(target, ClusterQueue) else None
    if selector is not None and not selector.matches(labels):
        place.report.warning(
            place.at("metadata", "namespace"),
            f"ClusterQueue {queue.cluster_queue} does not select namespace {queue.namespace}: it admits none",
            "label the namespace so that the namespaceSelector matches it",
            "namespace-not-selected",
        )


def _check_job(job: Job, place: Reader, names: Names) -> None:
    if isinstance(job.rules, FlowRules):
        _check_flow(job, job.rules, place, names)
        return
    rules = job.rules if isinstance(job.rules, CronRules) else None
    above: Path = ("spec", "jobTemplate") if rules is not None and rules.makes != "SparkApplication" else ()
    queue, priority = (rules.queue, rules.priority_class) if rules else (job.queue, job.workload_priority_class)
    if queue:
        path: Path = (*above, "metadata", "labels", QUEUE)
        effect = "the job waits until it exists"
        key = f"{job.namespace}/{queue}"
        _defined(key, "local_queues", "LocalQueue", names, place, path, effect, _severity_of_queue(names))
    elif job.kind not in _VOLCANO and _is_unqueued(job, names):
        problem = "it has no queue-name label: Kueue does not manage it, its pods start at once"
        path = (*above, "metadata", "labels")
        place.report.note(place.at(*path), problem, f"add the label {QUEUE} to queue it", "no-queue")
    if priority:
        _defined(
            priority,
            "workload_priority_classes",
            "WorkloadPriorityClass",
            names,
            place,
            (*above, "metadata", "labels", PRIORITY_CLASS),
            "Kueue creates no Workload until it is; the simulator takes priority 0",
        )
    if isinstance(job.rules, TrainRules):
        _check_runtime(job, job.rules, place, names)
    if job.kind == "VolcanoJob":
        check_queue_of_job(place, known_queues(names.get("volcano_queues", {})))
    for name in dict.fromkeys(pods.template.priority_class for pods in job.pod_sets):
        _check_priority(name, place, names)


def _check_flow(flow: Job, rules: FlowRules, place: Reader, names: Names) -> None:
    """Check that the JobTemplates of a JobFlow are in its namespace."""
    for number, one in enumerate(rules.flows):
        key = f"JobTemplate/{flow.namespace}/{one.template}"
        effect = "the JobFlow stops at it until it exists"
        severity = _severity(any(key.startswith("JobTemplate/") for key in names.get("jobs", {})))
        _defined(key, "jobs", "JobTemplate", names, place, ("spec", "flows", number, "name"), effect, severity)


def _check_runtime(job: Job, rules: TrainRules, place: Reader, names: Names) -> None:
    """Check a TrainJob's runtime, in its namespace or cluster-wide; runtimes that the trainer installs need no file."""
    is_cluster_wide = rules.kind == CLUSTER_WIDE
    if rules.runtime and not (is_cluster_wide and rules.runtime in SHIPPED):
        key = rules.runtime if is_cluster_wide else f"{job.namespace}/{rules.runtime}"
        effect = "the TrainJob is refused until it exists"
        severity = _severity(bool(names.get("training_runtimes")))
        _defined(key, "training_runtimes", rules.kind, names, place, ("spec", "runtimeRef", "name"), effect, severity)


def _severity_of_queue(names: Names) -> Severity:
    """Severity of a missing LocalQueue: a note if the input has no queues, which may be elsewhere then."""
    return _severity(any(names.get(table) for table in ("local_queues", "cluster_queues")))


def _severity(has_fellows: bool) -> Severity:
    """Severity of a missing object: a note if the input has none of its kind, which may be elsewhere then."""
    return Severity.WARNING if has_fellows else Severity.NOTE


def _is_unqueued(job: Job, names: Names) -> bool:
    """True if there are LocalQueues, but no default LocalQueue in the job's namespace."""
    queues = names.get("local_queues", {})
    return bool(queues) and f"{job.namespace}/{DEFAULT_QUEUE}" not in queues


def _check_priority(name: str, place: Reader, names: Names) -> None:
    if name and name not in SYSTEM_PRIORITIES:
        effect = "its pods are refused until it is"
        _defined(name, "priority_classes", "PriorityClass", names, place, _where(place.value, name), effect)


def _where(value: object, name: str) -> Path:
    """Return the path of the first priorityClassName (or priorityClass) with this name; the reader bounds the depth."""
    level: list[tuple[Path, object]] = [((), value)]
    while level:
        deeper: list[tuple[Path, object]] = []
        for path, part in level:
            if isinstance(part, dict):
                for key in ("priorityClassName", "priorityClass"):
                    if part.get(key) == name:
                        return (*path, key)
                deeper += [((*path, str(key)), child) for key, child in part.items()]
            elif isinstance(part, list):
                deeper += [((*path, n), child) for n, child in enumerate(part)]
        level = deeper
    return ("spec",)


def _check_workload(workload: Workload, place: Reader, names: Names) -> None:
    if workload.queue:
        effect = "the workload waits until it exists"
        path: Path = ("spec", "queueName")
        severity = _severity_of_queue(names)
        _defined(workload.local_queue, "local_queues", "LocalQueue", names, place, path, effect, severity)


def _check_defaults(entries: Iterable[LoadedObject]) -> None:
    default = ""
    for entry in entries:
        obj = entry.obj
        if not isinstance(obj, PriorityClass) or not obj.global_default:
            continue
        if default:
            path = entry.place.at("globalDefault")
            problem = f"PriorityClass {default} is the global default already"
            entry.place.report.refused(path, problem, "only one class may be", "two-defaults")
        default = default or obj.name
