"""The changes that may let a workload in, as data, and how each is made to a rehearsal.

A suggestion may have several steps, such as a limit for each of two resources. Steps have a size, in units of what they
change: where a smaller one is enough, the greater one is no suggestion.
"""

from typing import Literal, Union, assert_never

from msgspec import Struct
from msgspec.structs import replace

from gpuconsole.model.cluster import Container, LabelSelector, Namespace, Node, PodTemplate, Toleration
from gpuconsole.model.queues import ClusterQueue, Cohort, FlavorQuotas, Quota, ResourceGroup, StopPolicy
from gpuconsole.model.workloads import PodSet, TopologyRequest, Workload
from gpuconsole.sim.rehearsal import Rehearsal

Owner = Literal["ClusterQueue", "Cohort"]
Limit = Literal["nominalQuota", "borrowingLimit", "lendingLimit"]


class End(Struct, frozen=True, tag="end"):
    """A workload ends, or is taken out of its queue."""

    workload: str


class RaiseLimit(Struct, frozen=True, kw_only=True, tag="raise-limit"):
    """A quota, or a limit, of a ClusterQueue or a Cohort grows by so much, in base units."""

    kind: Owner
    name: str
    limit: Limit
    flavor: str
    resource: str
    by: int


class AskLess(Struct, frozen=True, kw_only=True, tag="ask-less"):
    """Each pod of a pod set asks for less of a resource."""

    pod_set: str
    resource: str
    amount: int
    was: int


class FewerPods(Struct, frozen=True, kw_only=True, tag="fewer-pods"):
    """A pod set has fewer pods."""

    pod_set: str
    count: int
    was: int


class UsePriority(Struct, frozen=True, kw_only=True, tag="use-priority", omit_defaults=True):
    """The workload has another priority; the lowest class that was tried and lets it in, too, is named beside it."""

    priority: int
    was: int
    priority_class: str = ""
    class_priority: int = 0


class AddNodes(Struct, frozen=True, kw_only=True, tag="add-nodes"):
    """More nodes like one that is there, beside it in the topology."""

    flavor: str
    like: str
    count: int


class UseTopology(Struct, frozen=True, kw_only=True, tag="use-topology"):
    """A pod set asks for its pods to be near each other at another level; both empty = anywhere."""

    pod_set: str
    required: str = ""
    preferred: str = ""


class Tolerate(Struct, frozen=True, kw_only=True, tag="tolerate"):
    """The pods of a pod set tolerate a taint."""

    pod_set: str
    key: str
    value: str = ""
    effect: str = ""


class DropSelector(Struct, frozen=True, kw_only=True, tag="drop-selector"):
    """The pods of a pod set do not select their nodes by a label any more."""

    pod_set: str
    label: str


class MoveTo(Struct, frozen=True, tag="move-to"):
    """The workload goes to another LocalQueue of its namespace."""

    queue: str


class Resume(Struct, frozen=True, kw_only=True, tag="resume"):
    """What was stopped goes on: the workload itself, its LocalQueue or its ClusterQueue."""

    kind: Literal["Workload", "LocalQueue", "ClusterQueue"]
    name: str


class AdmitNamespace(Struct, frozen=True, kw_only=True, tag="admit-namespace"):
    """The namespace gets the labels that the ClusterQueue selects; one without a selector opens to all instead."""

    cluster_queue: str
    namespace: str


Step = Union[
    End,
    RaiseLimit,
    AskLess,
    FewerPods,
    UsePriority,
    AddNodes,
    UseTopology,
    Tolerate,
    DropSelector,
    MoveTo,
    Resume,
    AdmitNamespace,
]


def size(step: Step) -> int:
    """How great a change is; 1 for what can only be done or left."""
    match step:
        case RaiseLimit():
            return step.by
        case AskLess():
            return step.was - step.amount
        case FewerPods():
            return step.was - step.count
        case UsePriority():
            return step.priority - step.was
        case AddNodes():
            return step.count
        case _:
            return 1


def sized(step: Step, units: int) -> tuple[Step, ...]:
    """The same change of another size; of none, where that is nothing."""
    if units <= 0:
        return ()
    match step:
        case RaiseLimit():
            return (replace(step, by=units),)
        case AskLess():
            return (replace(step, amount=step.was - units),)
        case FewerPods():
            return (replace(step, count=step.was - units),)
        case UsePriority():
            return (replace(step, priority=step.was + units),)
        case AddNodes():
            return (replace(step, count=units),)
        case _:
            return (step,)


def take(rehearsal: Rehearsal, key: str, step: Step) -> None:
    """Make a change, for the workload `key`."""
    objects = rehearsal.session.setup.objects
    workload = rehearsal.workloads[key]
    match step:
        case End(other):
            rehearsal.finish(other)
        case RaiseLimit(kind="ClusterQueue"):
            rehearsal.apply(_raised(objects.cluster_queues[step.name], step))
        case RaiseLimit():
            rehearsal.apply(_raised(objects.cohorts.get(step.name) or Cohort(name=step.name), step))
        case AddNodes():
            for copy in more_nodes(objects.nodes[step.like], step.count):
                rehearsal.apply(copy)
        case Resume(kind="LocalQueue"):
            rehearsal.apply(replace(objects.local_queues[step.name], stop_policy=StopPolicy.NONE))
        case Resume(kind="ClusterQueue"):
            rehearsal.apply(replace(objects.cluster_queues[step.name], stop_policy=StopPolicy.NONE))
        case AdmitNamespace():
            _open(rehearsal, objects.cluster_queues[step.cluster_queue], step.namespace)
        case _:
            rehearsal.apply(changed(workload, step))


def changed(
    workload: Workload,
    step: AskLess | FewerPods | UsePriority | UseTopology | Tolerate | DropSelector | MoveTo | Resume,
) -> Workload:
    """The workload as it would have been submitted with this change."""
    match step:
        case Resume():
            return replace(workload, active=True)
        case MoveTo(queue):
            return replace(workload, queue=queue)
        case UsePriority():
            return replace(workload, priority=step.priority, priority_class="", priority_kind="")
        case AskLess() | FewerPods() | UseTopology() | Tolerate() | DropSelector():
            pod_sets = tuple(_changed(p, step) if p.name == step.pod_set else p for p in workload.pod_sets)
            return replace(workload, pod_sets=pod_sets)
        case _:
            assert_never(step)


def _changed(pod_set: PodSet, step: AskLess | FewerPods | UseTopology | Tolerate | DropSelector) -> PodSet:
    template = pod_set.template
    match step:
        case FewerPods():
            return replace(pod_set, count=step.count)
        case UseTopology():
            asked = pod_set.topology or TopologyRequest()
            anywhere = not (step.required or step.preferred)
            looser = replace(asked, required=step.required, preferred=step.preferred, unconstrained=anywhere)
            return replace(pod_set, topology=looser)
        case AskLess():
            return replace(pod_set, template=_asking(template, step.resource, step.amount))
        case Tolerate():
            one = Toleration(step.key, "Equal", step.value, step.effect)
            return replace(pod_set, template=replace(template, tolerations=(*template.tolerations, one)))
        case DropSelector():
            left = {key: value for key, value in template.node_selector.items() if key != step.label}
            return replace(pod_set, template=replace(template, node_selector=left))
        case _:
            assert_never(step)


def _asking(template: PodTemplate, resource: str, amount: int) -> PodTemplate:
    """The template with so much less in the containers that ask for the resource, the last one first."""
    surplus = template.requests.get(resource, 0) - amount
    containers: list[Container] = []
    for container in reversed(template.containers):
        held = container.requests.get(resource, container.limits.get(resource, 0))
        cut = min(held, surplus)
        surplus -= cut
        containers.append(_cut(container, resource, held - cut) if cut else container)
    return replace(template, containers=tuple(reversed(containers)))


def _cut(container: Container, resource: str, amount: int) -> Container:
    requests = {**container.requests, resource: amount}
    limits = {**container.limits, resource: amount} if resource in container.limits else container.limits
    return replace(container, requests=requests, limits=limits)


def more_nodes(like: Node, count: int) -> list[Node]:
    """Nodes that differ from one in their names only."""
    names = [f"{like.name}-more-{number}" for number in range(1, count + 1)]
    host = "kubernetes.io/hostname"
    return [
        replace(like, name=name, labels={**like.labels, host: name} if host in like.labels else like.labels)
        for name in names
    ]


def _raised(owner: ClusterQueue | Cohort, step: RaiseLimit) -> ClusterQueue | Cohort:
    """The owner with a greater quota or limit; where it has no quota for it, it gets one."""
    pair = (step.flavor, step.resource)
    old = owner.quotas().get(pair, Quota())
    match step.limit:
        case "nominalQuota":
            new = replace(old, nominal=old.nominal + step.by)
        case "borrowingLimit":
            new = replace(old, borrowing_limit=(old.borrowing_limit or 0) + step.by)
        case "lendingLimit":
            new = replace(old, lending_limit=(old.lending_limit or 0) + step.by)
    if pair not in owner.quotas():
        group = ResourceGroup((step.resource,), (FlavorQuotas(step.flavor, {step.resource: new}),))
        return replace(owner, resource_groups=(*owner.resource_groups, group))
    groups = tuple(replace(g, flavors=tuple(_with(f, pair, new) for f in g.flavors)) for g in owner.resource_groups)
    return replace(owner, resource_groups=groups)


def _with(flavor: FlavorQuotas, pair: tuple[str, str], quota: Quota) -> FlavorQuotas:
    if flavor.name != pair[0] or pair[1] not in flavor.resources:
        return flavor
    return replace(flavor, resources={**flavor.resources, pair[1]: quota})


def _open(rehearsal: Rehearsal, queue: ClusterQueue, namespace: str) -> None:
    known = rehearsal.session.setup.objects.namespaces.get(namespace) or Namespace(name=namespace)
    if queue.namespace_selector is None:
        rehearsal.apply(replace(queue, namespace_selector=LabelSelector()))
    rehearsal.apply(
        replace(known, labels={**known.labels, **(queue.namespace_selector or LabelSelector()).match_labels})
    )
