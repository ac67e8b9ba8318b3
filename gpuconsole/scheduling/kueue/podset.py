"""Computes the changes that an admission makes to a job's pods: node selectors, tolerations, and additions by checks.

Templates are never changed in place, so that a stopped job still has its original ones (RestorePodSpec). Kueue 0.19
pkg/podset and jobframework getPodSetsInfoFromStatus.

It also compares and replaces the pod counts of pod sets, by which elastic workloads scale (Kueue 0.19
pkg/workload/podsetscounts.go).
"""

import re
from collections.abc import Iterable, Iterator, Mapping

from msgspec import Struct
from msgspec.structs import replace

from gpuconsole.model.jobs.workloads import POD_SET, WORKLOAD
from gpuconsole.model.labels import NO_LABELS, Toleration
from gpuconsole.model.pod_template import PodSet, PodTemplate
from gpuconsole.model.queues import ResourceFlavor
from gpuconsole.model.workloads import PodSetAssignment, PodSetUpdate, Workload
from gpuconsole.scheduling.kueue.config import KueueConfig

SLICE_NAME = "kueue.x-k8s.io/workload-slice-name"
TOPOLOGY_GATE = "kueue.x-k8s.io/topology"
UNCONSTRAINED = "kueue.x-k8s.io/podset-unconstrained-topology"
LOCAL_QUEUE = "kueue.x-k8s.io/local-queue-name"
CLUSTER_QUEUE = "kueue.x-k8s.io/cluster-queue-name"
_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")

Texts = Mapping[str, str]


class Conflict(ValueError):
    """Two sources set different values for the same label, annotation or node selector key; the job cannot start."""


class Additions(Struct, frozen=True, kw_only=True):
    """Everything that is added to the pods of one pod set."""

    labels: Texts = NO_LABELS
    annotations: Texts = NO_LABELS
    node_selector: Texts = NO_LABELS
    tolerations: tuple[Toleration, ...] = ()
    scheduling_gates: tuple[str, ...] = ()

    def with_label(self, key: str, value: str) -> "Additions":
        """Return the additions with one more label."""
        return replace(self, labels={**self.labels, key: value})

    def with_annotation(self, key: str, value: str) -> "Additions":
        """Return the additions with one more annotation."""
        return replace(self, annotations={**self.annotations, key: value})

    def join(self, more: "Additions") -> "Additions":
        """Return both combined, without repeated tolerations and gates. Raises Conflict."""
        return Additions(
            annotations=_join_without_conflict("annotations", self.annotations, more.annotations),
            labels=_join_without_conflict("labels", self.labels, more.labels),
            node_selector=_join_without_conflict("nodeSelector", self.node_selector, more.node_selector),
            tolerations=_with_tolerations(self.tolerations, more.tolerations),
            scheduling_gates=tuple(dict.fromkeys((*self.scheduling_gates, *more.scheduling_gates))),
        )


def from_assignment(
    assignment: PodSetAssignment, pod_set: PodSet, flavors: Mapping[str, ResourceFlavor], *, topology: bool = True
) -> Additions:
    """Return the node labels and tolerations of the flavors and, if the pods have a topology assignment, the scheduling
    gate.

    `topology` is the gate TopologyAwareScheduling. Raises LookupError for a flavor that does not exist.
    """
    selector: dict[str, str] = {}
    tolerations: list[Toleration] = []
    for name in dict.fromkeys(assignment.flavors.values()):
        if name not in flavors:
            raise LookupError(f'resourceflavors.kueue.x-k8s.io "{name}" not found')
        selector.update(flavors[name].node_labels)
        tolerations.extend(flavors[name].tolerations)
    added = Additions(node_selector=selector, tolerations=tuple(tolerations))
    if not topology or not assignment.topology:
        return added
    asked = pod_set.topology
    implied = asked is None or not (asked.required or asked.preferred or asked.unconstrained)
    added = replace(added, scheduling_gates=(TOPOLOGY_GATE,))
    return added.with_annotation(UNCONSTRAINED, "true") if implied else added


def from_update(update: PodSetUpdate) -> Additions:
    """Return the additions that an admission check requests."""
    return Additions(
        labels=update.labels,
        annotations=update.annotations,
        node_selector=update.node_selector,
        tolerations=update.tolerations,
    )


def additions_by_pod_set(
    workload: Workload, flavors: Mapping[str, ResourceFlavor], config: KueueConfig
) -> Iterator[tuple[PodSet, PodSetAssignment, Additions]]:
    """Yield each admitted pod set with its assignment and all additions to its pods.

    Raises Conflict if a check contradicts a flavor or another check, LookupError for a missing flavor.
    """
    if workload.admission is None:
        return
    pod_sets = {pod_set.name: pod_set for pod_set in workload.pod_sets}
    topology = config.enabled("TopologyAwareScheduling")
    for assignment in workload.admission.pod_sets:
        pod_set = pod_sets.get(assignment.name)
        if pod_set is None:
            continue
        added = from_assignment(assignment, pod_set, flavors, topology=topology).with_label(POD_SET, assignment.name)
        if topology:
            added = added.with_annotation(WORKLOAD, workload.name)
        if config.enabled("AssignQueueLabelsForPods"):
            added = added.with_label(LOCAL_QUEUE, workload.queue)
            if _LABEL.fullmatch(workload.cluster_queue):
                added = added.with_label(CLUSTER_QUEUE, workload.cluster_queue)
        yield pod_set, assignment, _with_updates(added, workload, assignment.name)


def _with_updates(added: Additions, workload: Workload, pod_set: str) -> Additions:
    for check in workload.checks:
        update = next((update for update in check.updates if update.name == pod_set), None)
        if update is None:
            continue
        try:
            added = added.join(from_update(update))
        except Conflict as problem:
            raise Conflict(f'in admission check "{check.name}": {problem}') from problem
    return added


def apply_additions(template: PodTemplate, added: Additions, *, elastic: bool = True) -> PodTemplate:
    """Return the template with the additions. Raises Conflict.

    With `elastic` (gate ElasticJobsViaWorkloadSlices) annotations that Kueue wrote for an earlier slice are
    overwritten.
    """
    annotations = dict(template.annotations)
    for key in _overwritten(added) if elastic else ():
        annotations.pop(key, None)
    own = Additions(
        labels=template.labels,
        annotations=annotations,
        node_selector=template.node_selector,
        tolerations=template.tolerations,
        scheduling_gates=template.scheduling_gates,
    )
    both = own.join(added)
    return replace(
        template,
        labels=both.labels,
        annotations=both.annotations,
        node_selector=both.node_selector,
        tolerations=both.tolerations,
        scheduling_gates=both.scheduling_gates,
    )


def _overwritten(added: Additions) -> Iterator[str]:
    if SLICE_NAME in added.annotations:
        yield SLICE_NAME
        if WORKLOAD in added.annotations:
            yield WORKLOAD


def with_flavors(
    template: PodTemplate, assignment: PodSetAssignment, flavors: Mapping[str, ResourceFlavor]
) -> PodTemplate:
    """Return the template with its flavors' node labels as node selector, and their tolerations.

    Flavors that do not exist add nothing. Raises Conflict.
    """
    known = {name: flavors.get(name) or ResourceFlavor(name=name) for name in assignment.flavors.values()}
    return apply_additions(template, from_assignment(assignment, PodSet(), known, topology=False))


def _join_without_conflict(kind: str, current: Texts, added: Texts) -> Texts:
    for key, value in current.items():
        if added.get(key, value) != value:
            conflict = f"conflict for key={key}, value1={value}, value2={added[key]}"
            raise Conflict(f"invalid admission check PodSetUpdate: conflict for {kind}: {conflict}")
    return {**current, **added} if added else current


def _with_tolerations(current: tuple[Toleration, ...], added: tuple[Toleration, ...]) -> tuple[Toleration, ...]:
    """Return both, without repeated tolerations."""
    kept = list(current)
    for toleration in added:
        if not any(same_toleration(toleration, known) for known in kept):
            kept.append(toleration)
    return tuple(kept)


def same_toleration(one: Toleration, other: Toleration) -> bool:
    """True if both tolerate the same, for however long (Toleration.MatchToleration; no operator means Equal)."""
    return replace(one, seconds=None) == replace(other, seconds=None)


ELASTIC = "kueue.x-k8s.io/elastic-job"
ELASTIC_VALUE = "true"
"""The annotation of jobs, and of their Workloads, that may grow and shrink while they run."""

Counts = Mapping[str, int]
"""Pod set → number of its pods."""


def counts_of(pod_sets: Iterable[PodSet]) -> dict[str, int]:
    """Return the number of pods by pod set."""
    return {pod_set.name: pod_set.count for pod_set in pod_sets}


def is_fewer(counts: Counts, than: Counts) -> bool:
    """True if some pod set has fewer pods than in `than`; pod sets of one side only are ignored."""
    return any(count < than[name] for name, count in counts.items() if name in than)


def with_counts(workload: Workload, counts: Counts) -> Workload:
    """Return the workload with these numbers of pods; pod sets that are not named keep theirs."""
    pod_sets = tuple(replace(pods, count=counts.get(pods.name, pods.count)) for pods in workload.pod_sets)
    return workload if pod_sets == workload.pod_sets else replace(workload, pod_sets=pod_sets)


def capped_reclaimable_pods(workload: Workload, reported: Counts) -> dict[str, int]:
    """Return the reclaimable pods, at most as many as their pod set has: it may have shrunk
    (LimitReclaimablePodsToPodSetSizes).
    """
    sizes = counts_of(workload.pod_sets)
    return {name: min(count, sizes.get(name, count)) for name, count in reported.items()}


def with_reclaimable_pods(workload: Workload, reported: Counts) -> Workload:
    """Return the workload with these reclaimable pods, which need no quota any more (UpdateReclaimablePods)."""
    done = capped_reclaimable_pods(workload, reported)
    return workload if done == workload.reclaimable else replace(workload, reclaimable=done)
