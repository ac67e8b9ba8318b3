"""Search for the smallest change to a pending workload, to the nodes, or to stopped objects that unblocks it.

Each search yields nothing if no change of its kind works. See `quotas` for more quota, `pod_constraints` for placement
rules.
"""

from collections.abc import Iterator, Sequence
from itertools import islice, takewhile

from msgspec.structs import replace

from gpuconsole.insight.unblock.needs import QuotaGap, gaps_in_turn
from gpuconsole.insight.unblock.quotas import ends, raised, raises
from gpuconsole.insight.unblock.steps import (
    AddNodesStep,
    AdmitNamespace,
    AskLess,
    FewerPods,
    LowerGang,
    MoveTo,
    Resume,
    Step,
    Steps,
    UsePriority,
    size,
)
from gpuconsole.insight.unblock.trial import ChangeTrial, examined
from gpuconsole.model.device_units import accelerators, is_counted
from gpuconsole.model.queues import StopPolicy
from gpuconsole.scheduling.kueue.entry import CycleEntry

MOST_QUEUES = 8
MOST_PLACES = 8
MOST_NODES = 16


def smaller(trial: ChangeTrial, entry: CycleEntry, found: Sequence[QuotaGap]) -> Iterator[Steps]:
    """Try smaller requests: fewer pods (or a lower minCount) of the largest pod set, or a smaller request per pod."""
    pod_sets = trial.rehearsal.workloads[trial.key].pod_sets
    if not pod_sets:
        return
    largest = max(pod_sets, key=lambda p: (accelerators(p.requests), sum(p.requests.values())))
    if largest.count > 1 and largest.min_count is None:
        yield trial.least((FewerPods(pod_set=largest.name, count=1, was=largest.count),))
    for pod_set in pod_sets:
        if pod_set.min_count is not None and pod_set.min_count > 1:
            yield trial.least((LowerGang(gang=pod_set.name, field="minCount", count=1, was=pod_set.min_count),))
    short = {resource for gap in found for resource in gap.short}
    steps: list[Step] = []
    for resource, amount in largest.template.requests.items():
        covered = resource in entry.rules.group_of
        least = 1 if covered else 0
        if amount > least and (not covered or resource in short or (is_counted(resource) and not short)):
            steps.append(AskLess(pod_set=largest.name, resource=resource, amount=least, was=amount))
    if steps:
        yield trial.least(steps)


def priorities(trial: ChangeTrial) -> Iterator[Steps]:
    """Try to find the lowest priority that is enough, and the lowest PriorityClass with at least that."""
    step = _first_of_all(trial)
    least = trial.least((step,)) if step is not None else ()
    for found in least:
        assert isinstance(found, UsePriority)
        yield (_classed(trial, found),)


def _classed(trial: ChangeTrial, step: UsePriority) -> UsePriority:
    high = sorted((one.value, one.name) for one in trial.classes if one.value >= step.priority)
    works = ((value, name) for value, name in high if trial.works((UsePriority(priority=value, was=step.was),)))
    value, name = next(works, (0, ""))
    return replace(step, priority_class=name, class_priority=value)


def _first_of_all(trial: ChangeTrial) -> UsePriority | None:
    """Return a priority above all others; None if the workload has that."""
    was = trial.rehearsal.workloads[trial.key].priority
    highest = max(workload.priority for workload in trial.rehearsal.workloads.values()) + 1
    return UsePriority(priority=highest, was=was) if highest > was else None


def nodes(trial: ChangeTrial, entry: CycleEntry) -> Iterator[Steps]:
    """Try the fewest additional nodes of a flavor, like an existing one in its topology domain, that fit its pods."""
    setup = trial.rehearsal.session.setup
    for flavor in (f for group in entry.rules.groups for f in group.flavors if f in setup.topologies):
        domains = setup.topologies[flavor]
        siblings: dict[object, str] = {}
        for name, leaf in sorted(domains.leaf_of.items()):
            siblings.setdefault(domains.values[domains.leaf_domains[leaf]][:-1], name)
        best: Steps = ()
        for like in islice(siblings.values(), MOST_PLACES):
            most = size(best[0]) - 1 if best else MOST_NODES
            best = next(filter(None, (trial.least(steps) for steps in _growing(flavor, like, most))), best)
        if best:
            yield best
            return


def _growing(flavor: str, like: str, most: int) -> Iterator[Steps]:
    """Yield increasing numbers of nodes; of too many, other workloads may use some first."""
    counts = [*takewhile(lambda count: count < most, (2, 4, 8)), most] if most else []
    yield from ((AddNodesStep(flavor=flavor, like=like, count=count),) for count in counts)


def resumptions(trial: ChangeTrial) -> Iterator[Steps]:
    """Try changes for obstacles other than quota: a stopped workload or queue, or a namespace that is not selected."""
    steps = _stopped_objects(trial)
    if steps:
        yield trial.least(steps)


def _stopped_objects(trial: ChangeTrial) -> list[Step]:
    objects = trial.rehearsal.session.setup.objects
    workload = trial.rehearsal.workloads[trial.key]
    local_queue = objects.local_queues.get(workload.local_queue)
    queue = objects.cluster_queues.get(local_queue.cluster_queue) if local_queue is not None else None
    steps: list[Step] = []
    if not workload.active:
        steps.append(Resume(kind="Workload", name=workload.key))
    if local_queue is not None and local_queue.stop_policy is not StopPolicy.NONE:
        steps.append(Resume(kind="LocalQueue", name=local_queue.key))
    if queue is not None and queue.stop_policy is not StopPolicy.NONE:
        steps.append(Resume(kind="ClusterQueue", name=queue.name))
    if queue is not None and not trial.rehearsal.session.setup.matches_namespace(queue, workload.namespace):
        steps.append(AdmitNamespace(cluster_queue=queue.name, namespace=workload.namespace))
    return steps


def several(trial: ChangeTrial, entry: CycleEntry | None, found: Sequence[QuotaGap]) -> Iterator[Steps]:
    """Try changes of several kinds together, for a workload with several obstacles: resume, priority, quota."""
    opened = _stopped_objects(trial)
    if entry is None:
        yield from _changes_after_resuming(trial, opened)
        return
    first = _first_of_all(trial)
    name = entry.rules.name
    quotas = [steps for gap in found for steps in raised(trial, entry, "ClusterQueue", name, "nominalQuota", gap)] or [
        []
    ]
    for steps in quotas:
        whole = [*opened, *([first] if first is not None else []), *steps]
        least = trial.least(whole) if len(whole) > 1 else ()
        if least:
            yield least
            return


def _changes_after_resuming(trial: ChangeTrial, opened: Sequence[Step]) -> Iterator[Steps]:
    """Try further changes that are needed once stopped objects are resumed: other workloads end, or more quota."""
    if not opened:
        return
    beyond = ChangeTrial(trial.changed(opened), trial.key, trial.classes)
    entry = examined(beyond.rehearsal, trial.key)
    if entry is None:
        return
    found = gaps_in_turn(beyond.rehearsal.session, entry)
    for tried in (ends(beyond, entry), raises(beyond, entry, found)):
        more = next(filter(None, tried), ())
        if more:
            yield trial.least((*opened, *more))


def moves(trial: ChangeTrial) -> Iterator[Steps]:
    """Try the other LocalQueues of its namespace."""
    workload = trial.rehearsal.workloads[trial.key]
    queues = trial.rehearsal.session.setup.objects.local_queues.values()
    near = [q.name for q in queues if q.namespace == workload.namespace and q.name != workload.queue]
    for name in sorted(near)[:MOST_QUEUES]:
        if trial.works((MoveTo(name),)):
            yield (MoveTo(name),)
            return
