"""Search for the smallest change of each kind with which pending pods are scheduled, each tried in a fork."""

from collections.abc import Iterator
from itertools import islice

from gpuconsole.insight.demand import pod_gpus
from gpuconsole.insight.unblock.change_commands import GROUP, covered
from gpuconsole.insight.unblock.minimal_change import TriedEnough
from gpuconsole.insight.unblock.placement_trial import PlacementTrial, gang_of
from gpuconsole.insight.unblock.steps import (
    AddNodesStep,
    AskLess,
    DropSelector,
    End,
    FewerPods,
    LoosenBudget,
    LowerGang,
    Resume,
    Step,
    Steps,
    Tolerate,
    size,
)
from gpuconsole.model.cluster import Node
from gpuconsole.model.device_units import accelerators, is_counted
from gpuconsole.model.job import Job
from gpuconsole.scheduling.volcano.jobs.tasks import tasks_of

MOST_ENDS = 12
MOST_TOGETHER = 6
SHOWN_ENDS = 3
MOST_NODES = 8
MOST_KINDS = 4
"""Limit on the instance types that are tried."""
MOST_CORDONED = 8
_GANG_FIELDS = ("PyTorchJob", "TFJob", "XGBoostJob", "PaddleJob", "JAXJob", "MPIJob", "VolcanoJob")
"""Job kinds that have their own minimum of pods."""
HOSTNAME = "kubernetes.io/hostname"


def ends(trial: PlacementTrial) -> Iterator[Steps]:
    """Try the end of other work: up to three alone, the smallest first; else a few together."""
    candidates = list(islice(_candidates(trial), MOST_ENDS))
    alone = 0
    for other in candidates:
        if trial.works((End(other),)):
            alone += 1
            yield (End(other),)
            if alone == SHOWN_ENDS:
                return
        else:
            yield ()
    chosen: list[Step] = []
    for other in reversed(candidates) if not alone else ():
        chosen.append(End(other))
        if len(chosen) > MOST_TOGETHER:
            return
        if len(chosen) > 1 and trial.works(chosen):
            yield trial.least(chosen)
            return


def _candidates(trial: PlacementTrial) -> Iterator[str]:
    """Yield the work that runs on nodes, by GPUs and name, except the subject itself."""
    held: dict[str, int] = {}
    own = {pod.key for pod in trial.pods}
    for pod in trial.snapshot.pods.all():
        if pod.node and not pod.done and not pod.deleted and pod.key not in own:
            owner = pod.workload or pod.job or pod.key
            held[owner] = held.get(owner, 0) + pod_gpus(pod.template)
    if any(held.values()) and any(pod_gpus(p.template) for p in trial.pods or ()):
        held = {owner: count for owner, count in held.items() if count}
    return iter(sorted(held, key=lambda owner: (held[owner], owner)))


def gangs(trial: PlacementTrial) -> Iterator[Steps]:
    """Try a lower minimum of a gang, if an object has that number."""
    needed = trial.stand.needed
    if needed < 2 or trial.stand.started:
        return
    group = gang_of(trial.snapshot, trial.pods)
    if trial.job is not None and trial.job.kind in _GANG_FIELDS:
        gang, field = trial.job.name, "minAvailable"
    elif group is not None:
        gang, field = f"{GROUP}{group.key}", "minMember"
    else:
        return
    yield trial.least((LowerGang(gang=gang, field=field, count=1, was=needed),))


def smaller(trial: PlacementTrial) -> Iterator[Steps]:
    """Try fewer pods of the largest pod set, or a smaller request of each pod; for jobs without a Workload."""
    if not _free(trial) or trial.job is None:
        return
    largest = max(trial.job.pod_sets, key=lambda p: (accelerators(p.requests), sum(p.requests.values())))
    if largest.count > 1 and not _partitioned(trial.job, largest.name):
        yield trial.least((FewerPods(pod_set=largest.name, count=1, was=largest.count),))
    for resource, amount in largest.template.requests.items():
        if amount > 1 and (is_counted(resource) or not accelerators(largest.requests)):
            yield trial.least((AskLess(pod_set=largest.name, resource=resource, amount=1, was=amount),))


def _partitioned(job: Job, pod_set: str) -> bool:
    """True for a task of a Volcano Job whose replicas are fixed by its partitions."""
    return any(task.name == pod_set and task.partition is not None for task in tasks_of(job))


def nodes(trial: PlacementTrial) -> Iterator[Steps]:
    """Try the fewest additional nodes, like an existing one of the instance type that needs fewest."""
    shapes: dict[object, str] = {}
    for node in trial.snapshot.nodes.all():
        # A copy of a cordoned node would join uncordoned.
        if node.ready:
            shapes.setdefault(_shape(node), node.name)
    best: Steps = ()
    for like in islice(shapes.values(), MOST_KINDS):
        most = size(best[0]) - 1 if best else MOST_NODES
        best = (trial.least((AddNodesStep(flavor="", like=like, count=most),)) if most else ()) or best
        yield ()
    yield best


def _shape(node: Node) -> object:
    labels = tuple(sorted(pair for pair in node.labels.items() if pair[0] != HOSTNAME))
    return labels, tuple(sorted(node.allocatable.items())), node.taints


def cordoned(trial: PlacementTrial) -> Iterator[Steps]:
    """Try to uncordon each cordoned node."""
    shut = (node.name for node in trial.snapshot.nodes.all() if node.unschedulable and node.ready)
    for name in islice(shut, MOST_CORDONED):
        steps = (Resume(kind="Node", name=name),)
        if trial.works(steps):
            yield steps
            return
        yield ()


def suiting(trial: PlacementTrial) -> Iterator[Steps]:
    """Try changes of tolerations and node selectors that match its pods to nodes, one instance type at a time."""
    if not _free(trial) or trial.job is None:
        return
    seen: set[Steps] = set()
    for node in trial.snapshot.nodes.all():
        steps: list[Step] = []
        for pod_set in trial.job.pod_sets:
            template = pod_set.template
            steps += [
                Tolerate(pod_set=pod_set.name, key=taint.key, value=taint.value, effect=taint.effect)
                for taint in node.taints
                if taint.effect in ("NoSchedule", "NoExecute")
                and not any(t.tolerates(taint) for t in template.tolerations)
            ]
            steps += [
                DropSelector(pod_set=pod_set.name, label=label)
                for label, value in template.node_selector.items()
                if node.labels.get(label) != value
            ]
        if steps and tuple(steps) not in seen and len(seen) < MOST_KINDS:
            seen.add(tuple(steps))
            yield trial.least(steps)


def budgets(trial: PlacementTrial) -> Iterator[Steps]:
    """Try a looser disruption budget, for schedulers that respect budgets when they preempt."""
    for budget in trial.snapshot.pod_disruption_budgets.all():
        pods = covered(trial.snapshot, budget)
        if any(pod.node for pod in pods):
            yield trial.least((LoosenBudget(budget=budget.key, by=len(pods)),))


def protected(trial: PlacementTrial) -> Steps:
    """Return the budget that blocks the work, loosened as little as is enough; empty if none does."""
    try:
        if not any(True for _ in trial.snapshot.pod_disruption_budgets.all()) or trial.works(()):
            return ()
        return next(filter(None, budgets(trial)), ())
    except TriedEnough:
        return ()


def _free(trial: PlacementTrial) -> bool:
    """True for a job that may be changed: none of its pods runs, and it has no Workload."""
    return trial.stand.placed == 0 and not any(pod.workload for pod in trial.pods)
