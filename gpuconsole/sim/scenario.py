"""Scenarios: a cluster and the events in it, as one file; `build_simulation` makes the simulation.

Nodes are generated from quotas if the input has none (`with_generated_nodes`), so that queues alone can be simulated.
`for_scheduler` and `for_kueue` rewrite a scenario for another scheduler: Volcano, KAI or kube-scheduler alone, or
Kueue.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, assert_never

from msgspec import Struct
from msgspec.structs import replace

from gpuconsole.model.autoscaling import InstanceTypeCatalogue, NodePool, ProvisioningRequest
from gpuconsole.model.clock import Time, parse_time
from gpuconsole.model.cluster import Node, Pod
from gpuconsole.model.documents.metadata import LONGEST_LABEL, GeneratedNames
from gpuconsole.model.documents.reader import decode_strictly
from gpuconsole.model.job import Job, again
from gpuconsole.model.kai import EVERYTHING, UNLIMITED, KaiPodGroup, KaiQueue, QueueResource
from gpuconsole.model.labels import HOSTNAME
from gpuconsole.model.manifests import Severity, load
from gpuconsole.model.objects import Object
from gpuconsole.model.prices import Prices
from gpuconsole.model.queues import ClusterQueue, Cohort, Quota, ResourceFlavor, Topology
from gpuconsole.model.resources import CPU, EPHEMERAL_STORAGE, MEMORY, PODS, gpus, is_gpu, is_mig
from gpuconsole.model.snapshot import Snapshot
from gpuconsole.model.text import clean
from gpuconsole.model.volcano import PodGroup, VolcanoQueue
from gpuconsole.model.workloads import Workload
from gpuconsole.scheduling.kai.config import KaiPolicy
from gpuconsole.scheduling.kube.profile import PlacementPolicy
from gpuconsole.scheduling.kueue.config import KueueConfig
from gpuconsole.scheduling.volcano.config import HELM_CONF, VolcanoPolicy
from gpuconsole.sim.engine import Simulation
from gpuconsole.sim.policy import FixedCapacity, KarpenterPolicy, SimPolicy, Substitute, apply_gpu_setup
from gpuconsole.sim.scenario_capacity import NO_CATALOGUE, apply_setup_to_objects, apply_setup_to_steps, read_gpu_setup
from gpuconsole.sim.scenario_form import ClusterForm, ScenarioError, ScenarioForm, Step, decode_step_objects, read_steps
from gpuconsole.sim.scenario_policy import read_policy

GIB = 2**30
GPUS_PER_NODE = 8
_CPU_A_GPU, _MEMORY_A_GPU = 32_000, 256 * GIB
_CPU_NODE, _MEMORY_NODE = 64_000, 512 * GIB
_MOST_NODES = 10_000


def with_generated_nodes(objects: Iterable[Object], *, gpus_per_node: int = GPUS_PER_NODE) -> tuple[Object, ...]:
    """The objects, with nodes generated from the flavors if there is no Node among them.

    Namespaces that are only referenced are created during the simulation.
    """
    given = tuple(objects)
    if any(isinstance(obj, Node) for obj in given):
        return given
    return (*given, *generate_nodes(given, gpus_per_node))


def generate_nodes(objects: Iterable[Object], gpus_per_node: int) -> list[Node]:
    """Nodes for the nominal quota: ⌈Σ nominal GPUs of the flavor / GPUs per node⌉ of each flavor, at most 10,000.

    A flavor without GPUs gets nodes for its cpu and memory. The nodes of a flavor with a Topology have labels for its
    levels: they share one domain at each level above the host, so that the generated topology splits no gang.
    """
    given = tuple(objects)
    totals: dict[str, dict[str, int]] = {}
    for obj in given:
        if isinstance(obj, (ClusterQueue, Cohort)):
            _add_quotas(totals, obj.quotas())
    flavors = {obj.name: obj for obj in given if isinstance(obj, ResourceFlavor)}
    levels = {obj.name: obj.levels for obj in given if isinstance(obj, Topology)}
    found = (flavors.get(name, ResourceFlavor(name=name)) for name in totals)
    return [
        node
        for flavor in found
        for node in _nodes_of_flavor(flavor, levels.get(flavor.topology, ()), totals[flavor.name], gpus_per_node)
    ]


def _add_quotas(totals: dict[str, dict[str, int]], quotas: dict[tuple[str, str], Quota]) -> None:
    for (flavor, resource), quota in quotas.items():
        of_flavor = totals.setdefault(flavor, {})
        of_flavor[resource] = of_flavor.get(resource, 0) + quota.nominal


def _nodes_of_flavor(
    flavor: ResourceFlavor, levels: Sequence[str], total: dict[str, int], gpus_per_node: int
) -> list[Node]:
    devices = {name: amount for name, amount in total.items() if is_gpu(name) or is_mig(name)}
    count = max((-(-amount // gpus_per_node) for amount in devices.values()), default=0)
    capacity = {CPU: _CPU_NODE, MEMORY: _MEMORY_NODE}
    if devices:
        capacity = {CPU: _CPU_A_GPU * gpus_per_node, MEMORY: _MEMORY_A_GPU * gpus_per_node}
        capacity.update(dict.fromkeys(devices, gpus_per_node))
    # The nodes have enough cpu and memory for the whole quota.
    for resource in (CPU, MEMORY):
        if not devices:
            count = max(count, -(-total.get(resource, 0) // capacity[resource]))
        elif count:
            capacity[resource] = max(capacity[resource], -(-total.get(resource, 0) // count))
    # Other resources with quota are spread over the nodes.
    for resource, amount in total.items():
        if count and resource not in capacity:
            capacity[resource] = -(-amount // count)
    capacity = {PODS: 250, EPHEMERAL_STORAGE: 1000 * GIB, **capacity}
    domain = flavor.name[:LONGEST_LABEL].rstrip("-.")
    labels = {**dict.fromkeys(levels, domain), **flavor.node_labels}
    return [_new_node(flavor, labels, number, capacity) for number in range(1, min(count, _MOST_NODES) + 1)]


def _new_node(flavor: ResourceFlavor, labels: Mapping[str, str], number: int, capacity: dict[str, int]) -> Node:
    name = f"{flavor.name}-{number}"
    return Node(
        name=name,
        uid=f"node-{name}",
        labels={**labels, HOSTNAME: flavor.node_labels.get(HOSTNAME, name)},
        taints=flavor.node_taints,
        capacity=capacity,
        allocatable=capacity,
        synthesised=True,
    )


START = "2026-01-05T08:00:00Z"
USUAL_PRICES = Prices()


class Scenario(Struct, frozen=True, kw_only=True):
    """A cluster, and the events planned in it."""

    name: str = ""
    description: str = ""
    start: Time = parse_time(START)
    seed: int = 0
    objects: tuple[Object, ...] = ()
    clusters: Mapping[str, tuple[Object, ...]] = {}
    """Objects of worker clusters, by name."""
    steps: tuple[Step, ...] = ()
    policy: SimPolicy = SimPolicy()
    gpus_per_node: int = GPUS_PER_NODE


def load_scenario(
    documents: Sequence[Mapping[str, Any]],
    source: str = "scenario",
    *,
    objects: Sequence[Object] = (),
    folder: Path | None = None,
    prices: Prices = USUAL_PRICES,
    catalogue: InstanceTypeCatalogue = NO_CATALOGUE,
) -> Scenario:
    """Read a scenario from its document, with the objects of additional manifests.

    Without a document the cluster consists of those objects, and nothing is planned. `folder` is the folder of its
    `files`; `prices` and `catalogue` (instance types) are defaults. With a NodePool among the objects Karpenter
    provisions nodes from that catalogue, unless the scenario configures capacity. Raises ScenarioError that names every
    wrong key of `source`.
    """
    if len(documents) > 1:
        raise ScenarioError(f"{source}: there are {len(documents)} scenarios; give one at a time")
    problems: list[str] = []
    scenario = _read_scenario(documents[0] if documents else {}, objects, folder, prices, catalogue, problems)
    if problems or scenario is None:
        raise ScenarioError("\n".join(f"{source}: {problem}" for problem in problems))
    return scenario


def build_simulation(scenario: Scenario, *, seed: int | None = None, gpus_per_node: int | None = None) -> Simulation:
    """Make the simulation of a scenario: it is at the scenario's start, with its steps scheduled.

    Nodes are generated from the flavors if the objects have none and no autoscaler makes them. None: the scenario's own
    seed or number of GPUs per node.
    """
    objects = scenario.objects
    if isinstance(scenario.policy.capacity, FixedCapacity):
        made = with_generated_nodes(objects, gpus_per_node=gpus_per_node or scenario.gpus_per_node)
        objects = tuple(_with_gpu_setup(obj, scenario.policy) for obj in made)
    simulation = Simulation.from_objects(
        objects,
        policy=scenario.policy,
        seed=scenario.seed if seed is None else seed,
        start=scenario.start,
        clusters={name: with_generated_nodes(objs) for name, objs in scenario.clusters.items()},
    )
    for step in scenario.steps:
        simulation.schedule_commands(step.at, *step.commands)
    return simulation


def _with_gpu_setup(obj: Object, policy: SimPolicy) -> Object:
    """Apply the GPU setup to nodes generated from flavors as to all others."""
    return apply_gpu_setup(obj, policy.equipment) if isinstance(obj, Node) and obj.synthesised else obj


def _read_scenario(
    document: Mapping[str, Any],
    others: Sequence[Object],
    folder: Path | None,
    prices: Prices,
    catalogue: InstanceTypeCatalogue,
    problems: list[str],
) -> Scenario | None:
    form = decode_strictly(document, ScenarioForm, "", problems)
    if form is None:
        return None
    try:
        start = parse_time(form.start)
    except ValueError:
        problems.append(f"start: {clean(form.start, 60)!r} is no moment; write it as {START}")
        return None
    policy = read_policy(form, prices, folder, problems, catalogue)
    # Names of other manifests were generated elsewhere, perhaps from the same prefixes.
    names = GeneratedNames("scenario")
    equipment = read_gpu_setup(form.engine, folder, problems)
    steps = apply_setup_to_steps(read_steps(form.steps, start, problems, names), equipment, problems)
    if form.latencies is None and any(step.expect for step in steps):
        # Expectations are exact to the second, and must hold for every seed.
        policy = replace(policy, latencies=None)
    objects = apply_setup_to_objects(
        [*others, *_objects(form, "", folder, start, problems, names)], equipment, problems
    )
    clusters = {
        clean(name): _objects(cluster, f"clusters.{clean(name)}.", folder, start, problems, names)
        for name, cluster in form.clusters.items()
    }
    if provisions_by_default(document, objects) and catalogue.types:
        policy = replace(policy, capacity=KarpenterPolicy(catalogue=catalogue))
    return Scenario(
        name=form.name,
        description=form.description,
        start=start,
        seed=form.seed,
        objects=objects,
        clusters=clusters,
        steps=steps,
        policy=replace(policy, equipment=equipment),
        gpus_per_node=form.engine.capacity.gpus_per_node,
    )


def provisions_by_default(document: Mapping[str, Any], objects: Iterable[Object]) -> bool:
    """True if Karpenter provisions nodes because a NodePool exists and `engine.capacity` is not set."""
    engine = document.get("engine")
    says = isinstance(engine, Mapping) and "capacity" in engine
    return not says and any(isinstance(obj, NodePool) for obj in objects)


def _objects(
    form: ScenarioForm | ClusterForm,
    path: str,
    folder: Path | None,
    start: Time,
    problems: list[str],
    names: GeneratedNames,
) -> tuple[Object, ...]:
    """The objects of a scenario or one of its clusters, including those in the files that it names."""
    objects = [*decode_step_objects(form.objects, f"{path}objects", start, problems, names)]
    for name in form.files:
        objects.extend(_from_file(name, folder, start, problems, names))
    return tuple(objects)


def _from_file(
    name: str, folder: Path | None, now: Time, problems: list[str], names: GeneratedNames
) -> tuple[Object, ...]:
    if folder is None:
        problems.append("files: they are relative to the scenario's own file, and this one has none; use objects")
        return ()
    loaded = load((folder / name,), now=now, names=names)
    problems.extend(
        f"files: {finding.file}:{finding.line}: {finding.problem}; {finding.remedy}"
        for finding in loaded.findings
        if finding.severity is Severity.ERROR
    )
    return loaded.objects


_MADE = (Workload, PodGroup, KaiPodGroup, ProvisioningRequest)
"""Objects that controllers create for jobs."""


def for_scheduler(scenario: Scenario, substitute: Substitute, conf: str = HELM_CONF) -> Scenario:
    """Copy a scenario to run on this scheduler without Kueue; `conf` is the text of volcano-scheduler.conf.

    Volcano and KAI get a queue per ClusterQueue, unless one of that name exists: its nominal quota becomes the deserved
    amount, and with its borrowing limit the upper limit.
    """
    objects = list(scenario.objects)
    queues = [obj for obj in objects if isinstance(obj, ClusterQueue)]
    usual, placement = PlacementPolicy(), scenario.policy.placement
    match substitute:
        case Substitute.KUBE:
            chosen: PlacementPolicy | VolcanoPolicy | KaiPolicy = (
                placement if isinstance(placement, PlacementPolicy) else usual
            )
        case Substitute.VOLCANO:
            chosen = (
                placement if isinstance(placement, VolcanoPolicy) and conf == HELM_CONF else VolcanoPolicy(conf=conf)
            )
            known = {obj.name for obj in objects if isinstance(obj, VolcanoQueue)}
            objects += [_volcano_queue(queue) for queue in queues if queue.name not in known]
        case Substitute.KAI:
            chosen = placement if isinstance(placement, KaiPolicy) else KaiPolicy()
            objects += _kai_queues(queues, {obj.name for obj in objects if isinstance(obj, KaiQueue)})
        case _:
            assert_never(substitute)
    policy = replace(scenario.policy, kueue=None, substitute=substitute, placement=chosen, second_scheduler=None)
    return replace(scenario, objects=tuple(objects), policy=policy)


def for_kueue(scenario: Scenario) -> Scenario:
    """Copy a scenario so that Kueue admits and kube-scheduler places its jobs, whatever engines it names."""
    policy = scenario.policy
    own = policy.placement if isinstance(policy.placement, PlacementPolicy) else PlacementPolicy()
    chosen = replace(policy, kueue=policy.kueue or KueueConfig(), substitute=None, placement=own, second_scheduler=None)
    return replace(scenario, policy=chosen)


def _quota_limits(queue: ClusterQueue) -> tuple[dict[str, int], dict[str, int], dict[str, int]]:
    """For each resource: nominal quota, the part that is never lent, and the upper limit (omitted if unlimited)."""
    nominal: dict[str, int] = {}
    kept: dict[str, int] = {}
    most: dict[str, int | None] = {}
    for (_, resource), quota in queue.quotas().items():
        nominal[resource] = nominal.get(resource, 0) + quota.nominal
        if queue.cohort and quota.lending_limit is not None:
            kept[resource] = kept.get(resource, 0) + max(0, quota.nominal - quota.lending_limit)
        borrowed = quota.borrowing_limit if queue.cohort else 0
        before = most.get(resource, 0)
        most[resource] = None if borrowed is None or before is None else before + quota.nominal + borrowed
    return nominal, kept, {resource: amount for resource, amount in most.items() if amount is not None}


def _volcano_queue(queue: ClusterQueue) -> VolcanoQueue:
    nominal, kept, most = _quota_limits(queue)
    return VolcanoQueue(
        name=queue.name,
        weight=max(1, gpus(nominal)),
        deserved=nominal,
        guarantee=kept,
        capability=most,
        reclaimable=bool(queue.cohort),
    )


def _kai_queues(queues: Sequence[ClusterQueue], known: set[str]) -> Iterator[KaiQueue]:
    """A queue per ClusterQueue, below one for its cohort: KAI has departments above the queues that take jobs."""
    parents: dict[str, float] = {}
    for queue in queues:
        if queue.name in known:
            continue
        nominal, _, most = _quota_limits(queue)
        quota, limited = float(gpus(nominal)), any(map(is_gpu, most))
        parent = f"cohort-{queue.cohort}" if queue.cohort else f"cohort-of-{queue.name}"
        parents[parent] = parents.get(parent, 0) + quota
        limit = float(gpus(most)) if limited else UNLIMITED
        gpu = QueueResource(quota=quota, over_quota_weight=max(1.0, quota), limit=limit)
        yield KaiQueue(name=queue.name, parent=parent, gpu=gpu, cpu=EVERYTHING, memory=EVERYTHING)
    for name, quota in parents.items():
        gpu = QueueResource(quota=quota, over_quota_weight=1, limit=UNLIMITED)
        yield KaiQueue(name=name, gpu=gpu, cpu=EVERYTHING, memory=EVERYTHING)


def from_snapshot(snapshot: Snapshot, policy: SimPolicy, seed: int) -> Scenario:
    """A scenario that submits a cluster's unfinished work again, on its nodes, at the time of the Snapshot.

    Pods of jobs and Workloads are omitted, as are finished jobs.
    """
    return Scenario(start=snapshot.time, seed=seed, objects=tuple(_unfinished_work(snapshot)), policy=policy)


def _unfinished_work(snapshot: Snapshot) -> Iterator[Object]:
    for obj in snapshot.objects():
        match obj:
            case Job() if obj.ended or obj.owner:
                pass
            case Job():
                yield again(obj, obj.name)
            case Workload() if not obj.owner and not obj.finished:
                yield Workload(
                    namespace=obj.namespace,
                    name=obj.name,
                    annotations=obj.annotations,
                    queue=obj.queue,
                    priority_class=obj.priority_class,
                    pod_sets=obj.pod_sets,
                )
            case Pod() if obj.job or obj.workload:
                pass
            case _ if not isinstance(obj, _MADE):
                yield obj
