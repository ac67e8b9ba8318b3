"""Changes that may unblock a workload: as data, as text, as commands, and reduced to the smallest sufficient size.

A suggestion may have several steps, such as a limit for each of two resources. Steps have a size, in units of what they
change: only the smallest size that is enough is suggested (`minimal_changes`), verified as a whole. Trials apply the
steps to the admission state alone (`apply_change`) or to a simulation (`change_commands`).
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Literal, Protocol, Union, assert_never

from msgspec import UNSET, Struct
from msgspec.structs import replace

from gpuconsole.insight.pending.shortage import freed, show
from gpuconsole.model import commands
from gpuconsole.model.cluster import Namespace, Node, Pod, PodDisruptionBudget
from gpuconsole.model.commands import Command
from gpuconsole.model.job import Job, again
from gpuconsole.model.labels import LabelSelector, Taint, Toleration
from gpuconsole.model.objects import Object
from gpuconsole.model.pod_template import Container, PodSet, PodTemplate, TopologyRequest
from gpuconsole.model.queues import ClusterQueue, Cohort, FlavorQuotas, LocalQueue, Quota, ResourceGroup, StopPolicy
from gpuconsole.model.resources import is_binary
from gpuconsole.model.snapshot import Snapshot
from gpuconsole.model.volcano import VolcanoSpec
from gpuconsole.model.workloads import Workload
from gpuconsole.sim.admission_simulator import AdmissionSimulator

Owner = Literal["ClusterQueue", "Cohort"]
Limit = Literal["nominalQuota", "borrowingLimit", "lendingLimit"]


class End(Struct, frozen=True, tag="end"):
    """Suggested change: a running workload ends, or a pending one is removed from its queue."""

    workload: str


class RaiseLimit(Struct, frozen=True, kw_only=True, tag="raise-limit"):
    """Suggested change: raise a quota or limit of a ClusterQueue or Cohort by an amount, in base units."""

    kind: Owner
    name: str
    limit: Limit
    flavor: str
    resource: str
    by: int


class AskLess(Struct, frozen=True, kw_only=True, tag="ask-less"):
    """Suggested change: each pod of a pod set requests less of a resource."""

    pod_set: str
    resource: str
    amount: int
    was: int


class FewerPods(Struct, frozen=True, kw_only=True, tag="fewer-pods"):
    """Suggested change: a pod set has fewer pods."""

    pod_set: str
    count: int
    was: int


class LowerGang(Struct, frozen=True, kw_only=True, tag="lower-gang"):
    """Suggested change: a gang starts with fewer pods."""

    gang: str
    """Whose minimum is lowered: pod set (partial admission), job, or PodGroup (`PodGroup/namespace/name`)."""
    field: str
    """The field: minCount, minAvailable or minMember."""
    count: int
    was: int


class LoosenBudget(Struct, frozen=True, kw_only=True, tag="loosen-budget"):
    """Suggested change: a PodDisruptionBudget allows more disruptions."""

    budget: str
    """`namespace/name`."""
    by: int


class UsePriority(Struct, frozen=True, kw_only=True, tag="use-priority", omit_defaults=True):
    """Suggested change: another priority, with the lowest WorkloadPriorityClass that is enough, if there is one."""

    priority: int
    was: int
    priority_class: str = ""
    class_priority: int = 0


class AddNodesStep(Struct, frozen=True, kw_only=True, tag="add-nodes"):
    """Suggested change: more nodes like an existing one, in the same topology domain."""

    flavor: str
    like: str
    count: int


class UseTopology(Struct, frozen=True, kw_only=True, tag="use-topology"):
    """Suggested change: a pod set requests another topology level; both empty = none."""

    pod_set: str
    required: str = ""
    preferred: str = ""


class Tolerate(Struct, frozen=True, kw_only=True, tag="tolerate"):
    """Suggested change: the pods of a pod set tolerate a taint."""

    pod_set: str
    key: str
    value: str = ""
    effect: str = ""


class DropSelector(Struct, frozen=True, kw_only=True, tag="drop-selector"):
    """Suggested change: the pods of a pod set lose a label of their node selector."""

    pod_set: str
    label: str


class MoveTo(Struct, frozen=True, tag="move-to"):
    """Suggested change: the workload moves to another LocalQueue of its namespace."""

    queue: str


class Resume(Struct, frozen=True, kw_only=True, tag="resume"):
    """Suggested change: resume the workload, its LocalQueue or its ClusterQueue, or uncordon a node."""

    kind: Literal["Workload", "LocalQueue", "ClusterQueue", "Node"]
    name: str


class AdmitNamespace(Struct, frozen=True, kw_only=True, tag="admit-namespace"):
    """Suggested change: label a namespace as a ClusterQueue selects; without a selector, it selects all."""

    cluster_queue: str
    namespace: str


Step = Union[
    End,
    RaiseLimit,
    AskLess,
    FewerPods,
    LowerGang,
    LoosenBudget,
    UsePriority,
    AddNodesStep,
    UseTopology,
    Tolerate,
    DropSelector,
    MoveTo,
    Resume,
    AdmitNamespace,
]
Steps = tuple[Step, ...]


def size(step: Step) -> int:
    """Return the amount of a change, such as the number of nodes; 1 for a change without an amount."""
    match step:
        case RaiseLimit() | LoosenBudget():
            return step.by
        case AskLess():
            return step.was - step.amount
        case FewerPods() | LowerGang():
            return step.was - step.count
        case UsePriority():
            return step.priority - step.was
        case AddNodesStep():
            return step.count
        case _:
            return 1


def sized(step: Step, units: int) -> tuple[Step, ...]:
    """Return the same change with another amount; empty for 0."""
    if units <= 0:
        return ()
    match step:
        case RaiseLimit() | LoosenBudget():
            return (replace(step, by=units),)
        case AskLess():
            return (replace(step, amount=step.was - units),)
        case FewerPods() | LowerGang():
            return (replace(step, count=step.was - units),)
        case UsePriority():
            return (replace(step, priority=step.was + units),)
        case AddNodesStep():
            return (replace(step, count=units),)
        case _:
            return (step,)


def reductions(steps: Sequence[Step]) -> list[Steps]:
    """Return all variants of the changes in which one of them is smaller by one unit, or left out at 0."""
    return [(*steps[:place], *sized(step, size(step) - 1), *steps[place + 1 :]) for place, step in enumerate(steps)]


MEBIBYTE = 2**20


def in_words(steps: Iterable[Step], snapshot: Snapshot, short: Iterable[str] = ()) -> str:
    """Return the changes as one line of text; `short` names the resources that the workload lacks."""
    return ", and ".join(_in_words(step, snapshot, short) for step in steps)


def _in_words(step: Step, snapshot: Snapshot, short: Iterable[str]) -> str:
    match step:
        case End(key):
            return _end(key, snapshot.workloads.get(key), short)
        case RaiseLimit():
            what = f"{show(step.resource, step.by)} of {step.flavor}"
            return f"raise the {step.limit} of {step.kind} {step.name} by {what}"
        case AskLess():
            return _ask_less(step)
        case FewerPods():
            return f"run {step.count} pod{'s' if step.count != 1 else ''} of {step.pod_set} instead of {step.was}"
        case LowerGang():
            return f"lower {step.field} of {step.gang} from {step.was} to {step.count}"
        case LoosenBudget():
            disruptions = f"{step.by} more disruption{'s' if step.by != 1 else ''}"
            return f"let PodDisruptionBudget {step.budget} allow {disruptions}"
        case UsePriority():
            named = f" (class {step.priority_class}: {step.class_priority})" if step.priority_class else ""
            return f"raise the priority from {step.was} to {step.priority}{named}"
        case AddNodesStep():
            of = f" ({step.flavor})" if step.flavor else ""
            return f"{step.count} more node{'s' if step.count != 1 else ''} like {step.like}{of}"
        case UseTopology():
            near = step.required or step.preferred
            how = "required" if step.required else "preferred"
            return f"{how} topology {near} for {step.pod_set}" if near else f"no topology request for {step.pod_set}"
        case Tolerate():
            taint = f"{step.key}={step.value}:{step.effect}" if step.value else f"{step.key}:{step.effect}"
            return f"add a toleration for {taint} to {step.pod_set}"
        case DropSelector():
            return f"remove label {step.label} from the node selector of {step.pod_set}"
        case MoveTo(queue):
            return f"submit it to LocalQueue {queue}"
        case Resume(kind="Node"):
            return f"uncordon node {step.name}"
        case Resume():
            return f"resume {step.kind} {step.name}"
        case AdmitNamespace():
            return f"let the namespaceSelector of ClusterQueue {step.cluster_queue} match namespace {step.namespace}"
        case _:
            assert_never(step)


def _ask_less(step: AskLess) -> str:
    """Format a smaller request; memory in whole mebibytes, rounded down."""
    if not step.amount:
        return f"do not request {step.resource}"
    unit = MEBIBYTE if is_binary(step.resource) and step.amount >= MEBIBYTE else 1
    amount = step.amount // unit * unit
    return f"request {show(step.resource, amount)} per pod instead of {show(step.resource, step.was)}"


def _end(key: str, workload: Workload | None, short: Iterable[str]) -> str:
    if workload is not None and not workload.reserved:
        return f"{key}, ahead of it in the queue, is deleted"
    amounts = freed(workload, short) if workload is not None else ""
    return f"{key} ends ({amounts})" if amounts else f"{key} ends"


class TriedEnough(Exception):
    """The limit on trials was reached."""


class Tries(Protocol):
    """Tries whether changes would unblock a pending workload, or pending pods, in forks."""

    def works(self, steps: Sequence[Step]) -> bool:
        """True if these changes together unblock it; may be False for a change that does. Raises TriedEnough."""

    def fails(self, steps: Sequence[Step]) -> bool:
        """True if these changes certainly do not unblock it. Raises TriedEnough."""


def minimal_changes(tries: Tries, steps: Sequence[Step]) -> Steps:
    """Return the changes, each as small as is still enough; empty if they do not work or none is needed.

    Every returned step is needed in its full size. Raises TriedEnough.
    """
    if not tries.works(steps):
        return ()
    kept: Steps = ()
    for place, step in enumerate(steps):
        kept += _smallest(tries, step, (*kept, *steps[place + 1 :]))
    # A smaller change may be enough where a greater one is not, so the sizes are verified.
    return kept if kept and all(tries.fails(reduced) for reduced in reductions(kept)) else ()


def _smallest(tries: Tries, step: Step, rest: Sequence[Step]) -> Steps:
    """Return the smallest size that is enough with the other steps, as found by doubling from 1; one less is not.

    With more quota other workloads may be admitted first, so that a small size is enough and a greater one is not.
    """
    low, high = -1, size(step)
    while high - low > 1:
        doubled = 0 if low < 0 else max(1, 2 * low)
        tried = doubled if doubled < high else (low + high) // 2
        if tries.works((*rest, *sized(step, tried))):
            high = tried
        else:
            low = tried
    return sized(step, high)


SHOWN_ENDS = 3


def endings(tries: Tries, candidates: Iterable[str], largest: Iterable[str]) -> Iterator[Steps]:
    """Yield other work whose end unblocks the subject: up to three alone, in this order; else a few of the largest.

    Yields no steps after a failed trial, so that the caller may do other work in between, or end the search.
    """
    alone = 0
    for other in candidates:
        works = tries.works((End(other),))
        yield (End(other),) if works else ()
        alone += works
        if alone == SHOWN_ENDS:
            return
    chosen: list[Step] = []
    for other in largest if not alone else ():
        chosen.append(End(other))
        if len(chosen) > 1 and tries.works(chosen):
            yield minimal_changes(tries, chosen)
            return


def new_tolerations(pod_set: PodSet, taints: Iterable[Taint], others: Sequence[Toleration] = ()) -> list[Step]:
    """Return the tolerations that the pods lack for taints that keep them off nodes; `others` come at admission."""
    known = (*pod_set.template.tolerations, *others)
    return [
        Tolerate(pod_set=pod_set.name, key=taint.key, value=taint.value, effect=taint.effect)
        for taint in taints
        if taint.effect in ("NoSchedule", "NoExecute") and not any(one.tolerates(taint) for one in known)
    ]


Reshape = AskLess | FewerPods | UseTopology | Tolerate | DropSelector
OfWork = Reshape | LowerGang | UsePriority | MoveTo
"""Changes of the work itself, besides resuming it."""
Around = RaiseLimit | AdmitNamespace | Resume
"""Changes of the queues, cohorts, nodes or namespaces around it."""


class SurroundingObjects(Protocol):
    """Queues, nodes and other objects by key, as a Snapshot and an admission session have them."""

    @property
    def cluster_queues(self) -> Mapping[str, ClusterQueue]: ...
    @property
    def local_queues(self) -> Mapping[str, LocalQueue]: ...
    @property
    def cohorts(self) -> Mapping[str, Cohort]: ...
    @property
    def namespaces(self) -> Mapping[str, Namespace]: ...
    @property
    def nodes(self) -> Mapping[str, Node]: ...


def apply_change(rehearsal: AdmissionSimulator, key: str, step: Step) -> None:
    """Apply a change for the workload `key` to the admission engine's state, without a simulation."""
    objects = rehearsal.session.compiled_config.objects
    match step:
        case End(other):
            rehearsal.finish(other)
        case AddNodesStep():
            for number in range(1, step.count + 1):
                rehearsal.apply(objects.nodes[step.like].twin(f"{step.like}-more-{number}"))
        case Resume(kind="Workload"):
            rehearsal.apply(replace(rehearsal.workloads[key], active=True))
        case RaiseLimit() | AdmitNamespace() | Resume():
            for obj in around(objects, step):
                rehearsal.apply(obj)
        case LoosenBudget():
            pass  # Kueue does not check disruption budgets.
        case _:
            rehearsal.apply(changed(rehearsal.workloads[key], step))


class _After(Struct, frozen=True):
    """The objects that the work depends on, with the changes made so far."""

    cluster_queues: dict[str, ClusterQueue]
    local_queues: dict[str, LocalQueue]
    cohorts: dict[str, Cohort]
    namespaces: dict[str, Namespace]
    nodes: Mapping[str, Node]


def all_around(objects: SurroundingObjects, steps: Iterable[Around]) -> tuple[Object, ...]:
    """Return the queues, cohorts, nodes and namespaces as these changes make them, one after the other."""
    after = _After(
        dict(objects.cluster_queues),
        dict(objects.local_queues),
        dict(objects.cohorts),
        dict(objects.namespaces),
        objects.nodes,
    )
    made: dict[tuple[type[Object], str], Object] = {}
    for step in steps:
        for obj in around(after, step):
            made[type(obj), obj.key] = obj
            match obj:
                case ClusterQueue():
                    after.cluster_queues[obj.key] = obj
                case LocalQueue():
                    after.local_queues[obj.key] = obj
                case Cohort():
                    after.cohorts[obj.key] = obj
                case Namespace():
                    after.namespaces[obj.key] = obj
                case _:
                    pass
    return tuple(made.values())


def around(objects: SurroundingObjects, step: Around) -> tuple[Object, ...]:
    """Return the queues, cohorts, nodes or namespaces as this change makes them."""
    match step:
        case RaiseLimit(kind="ClusterQueue"):
            return (_raised(objects.cluster_queues[step.name], step),)
        case RaiseLimit():
            return (_raised(objects.cohorts.get(step.name) or Cohort(name=step.name), step),)
        case Resume(kind="LocalQueue"):
            return (replace(objects.local_queues[step.name], stop_policy=StopPolicy.NONE),)
        case Resume(kind="ClusterQueue"):
            return (replace(objects.cluster_queues[step.name], stop_policy=StopPolicy.NONE),)
        case Resume(kind="Node"):
            return (replace(objects.nodes[step.name], unschedulable=False),)
        case Resume():
            return ()
        case AdmitNamespace():
            return _opened(objects, objects.cluster_queues[step.cluster_queue], step.namespace)
        case _:
            assert_never(step)


def changed(workload: Workload, step: OfWork) -> Workload:
    """Return the workload as if it had been submitted with this change."""
    match step:
        case MoveTo(queue):
            return replace(workload, queue=queue)
        case UsePriority():
            return replace(workload, priority=step.priority, priority_class="", priority_kind="")
        case LowerGang():
            lowered = (replace(p, min_count=step.count) if p.name == step.gang else p for p in workload.pod_sets)
            return replace(workload, pod_sets=tuple(lowered))
        case AskLess() | FewerPods() | UseTopology() | Tolerate() | DropSelector():
            return replace(workload, pod_sets=_reshaped(workload.pod_sets, step))
        case _:
            assert_never(step)


def changed_job(job: Job, step: Reshape | LowerGang) -> Job:
    """Return the job as if submitted with this change; a Volcano Job's minAvailable never exceeds its pods."""
    match step:
        case LowerGang():
            volcano = replace(job.volcano, min_available=step.count) if job.volcano is not None else None
            return replace(job, volcano=volcano, min_available=step.count)
        case _:
            pod_sets = _reshaped(job.pod_sets, step)
            volcano = _within(job.volcano, pod_sets) if job.volcano is not None else None
            least = volcano.min_available if volcano is not None else job.min_available
            return replace(job, pod_sets=pod_sets, volcano=volcano, min_available=least)


def _within(spec: VolcanoSpec, pod_sets: tuple[PodSet, ...]) -> VolcanoSpec:
    """Lower minAvailable to the number of pods, per task and in total, as Volcano's webhook requires."""
    tasks = tuple(
        task if task.min_available is None else replace(task, min_available=min(task.min_available, pods.count))
        for task, pods in zip(spec.tasks, pod_sets, strict=False)
    )
    total = sum(pods.count for pods in pod_sets)
    return replace(spec, min_available=min(spec.min_available, total), tasks=tasks)


def _reshaped(pod_sets: tuple[PodSet, ...], step: Reshape) -> tuple[PodSet, ...]:
    """Return the pod sets with this change applied to one of them."""
    return tuple(_changed(p, step) if p.name == step.pod_set else p for p in pod_sets)


def _changed(pod_set: PodSet, step: Reshape) -> PodSet:
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
    """Return the template with the request reduced in the containers that have it, the last one first."""
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


def _raised(owner: ClusterQueue | Cohort, step: RaiseLimit) -> ClusterQueue | Cohort:
    """Return the ClusterQueue or Cohort with a greater quota or limit; a quota is added if it has none."""
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


def _opened(objects: SurroundingObjects, queue: ClusterQueue, namespace: str) -> tuple[Object, ...]:
    """Return the queue and the namespace, changed so that the queue selects it."""
    known = objects.namespaces.get(namespace) or Namespace(name=namespace)
    selector = queue.namespace_selector
    if selector is None:
        return replace(queue, namespace_selector=LabelSelector()), known
    return (replace(known, labels={**known.labels, **selector.match_labels}, named_only=False),)


Asked = Reshape | LowerGang
"""Changes that only take effect when the work is submitted again."""
GROUP = "PodGroup/"
"""Prefix of `LowerGang.gang` for the minimum of a PodGroup."""


def change_commands(before: Snapshot, key: str, steps: Sequence[Step]) -> tuple[Command, ...]:
    """Return the commands that make the changes for the workload, job or pod `key`, all at once.

    Work that is submitted again keeps its name, its age and so its queue position. Raises LookupError if it is gone.
    """
    return tuple(_orders(before, key, steps))


def _orders(before: Snapshot, key: str, steps: Sequence[Step]) -> Iterator[Command]:
    around, work, late = list[Around](), list[Asked](), list[Command]()
    for step in steps:
        match step:
            case End(other):
                yield commands.Finish(other)
            case AddNodesStep():
                yield commands.AddNodes(before.nodes[step.like].name, step.count)
            case Resume(kind="Workload"):
                yield commands.SetActive(step.name, True)
            case RaiseLimit() | AdmitNamespace() | Resume():
                around.append(step)
            case LoosenBudget():
                budget = before.pod_disruption_budgets[step.budget]
                yield commands.Submit((loosened(before, budget, step.by),))
            case LowerGang() if step.gang.startswith(GROUP):
                name = step.gang.removeprefix(GROUP)
                group = before.pod_groups.get(name) or before.kai_pod_groups[name]
                yield commands.Submit((replace(group, min_member=step.count),))
            case UsePriority():
                late.append(commands.SetPriority(key, step.priority))
            case MoveTo():
                late.append(commands.MoveToQueue(key, step.queue))
            case _:
                work.append(step)
    for obj in all_around(before, around):
        yield from _around(before, obj)
    if work:
        yield from _asked_otherwise(before, key, work)
    yield from late


def _around(before: Snapshot, obj: Object) -> Iterator[Command]:
    """Return the commands that change an object: the most specific one, else the whole object."""
    match obj:
        case ClusterQueue() if _only_resized(before.cluster_queues[obj.name], obj):
            old = before.cluster_queues[obj.name]
            for (flavor, resource), quota in obj.quotas().items():
                was = old.quotas()[flavor, resource]
                if quota != was:
                    yield commands.SetQuota(
                        obj.name,
                        flavor,
                        resource,
                        quota.nominal,
                        UNSET if quota.borrowing_limit == was.borrowing_limit else quota.borrowing_limit,
                        UNSET if quota.lending_limit == was.lending_limit else quota.lending_limit,
                    )
            if obj.stop_policy is not old.stop_policy:
                yield commands.SetStopPolicy(obj.name, obj.stop_policy)
        case LocalQueue():
            yield commands.SetStopPolicy(obj.key, obj.stop_policy)
        case Node():
            yield commands.Cordon(obj.name, obj.unschedulable)
        case _:
            yield commands.Submit((obj,))


def _only_resized(old: ClusterQueue, new: ClusterQueue) -> bool:
    """True if only amounts of existing quotas and the stop policy differ."""
    same = replace(new, resource_groups=old.resource_groups, stop_policy=old.stop_policy) == old
    return same and old.quotas().keys() == new.quotas().keys()


def _asked_otherwise(before: Snapshot, key: str, steps: Sequence[Asked]) -> Iterator[Command]:
    """Return commands that submit the job, or the Workload, again with the change at its original time."""
    job = before.jobs.get(key)
    if job is not None:
        for step in steps:
            job = changed_job(job, step)
        yield commands.Delete("jobs", job.key)
        yield commands.Submit((_again(job),))
        return
    workload = before.workloads[key]
    for step in steps:
        workload = changed(workload, step)
    yield commands.Delete("workloads", key)
    yield commands.Submit((_anew(before, workload),))


def _again(job: Job) -> Job:
    return replace(again(job, job.name), uid=job.uid, created=job.created)


def _anew(before: Snapshot, workload: Workload) -> Object:
    """Return the object to submit for a changed workload: the Workload, or its job if that has independent pods."""
    job = before.jobs.get(workload.owner)
    if job is None or job.owner or not job.solo or sum(part.count for part in workload.pod_sets) == 1:
        return replace(workload, owner="", inadmissible=False, conditions=())
    return replace(again(job, job.name), uid=job.uid, created=workload.created, pod_sets=workload.pod_sets)


def covered(snapshot: Snapshot, budget: PodDisruptionBudget) -> list[Pod]:
    """Return the pods that a disruption budget selects."""
    return [pod for pod in snapshot.pods.all() if budget.covers(pod)]


def loosened(snapshot: Snapshot, budget: PodDisruptionBudget, by: int) -> PodDisruptionBudget:
    """Return the budget with `by` more disruptions allowed."""
    expected = len(covered(snapshot, budget))
    away = budget.allowed(expected, expected)
    return replace(budget, min_available="", max_unavailable=str(away + by))
