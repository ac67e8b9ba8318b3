"""Small clusters for the tests of this room, built from structs, so that each number can be checked by hand."""

from collections.abc import Iterable, Mapping

from gpuconsole.model.clock import MINUTE, Time
from gpuconsole.model.cluster import Namespace, Node, Pod, PodPhase
from gpuconsole.model.events import Applied, HistoryEvent
from gpuconsole.model.labels import LabelSelector
from gpuconsole.model.objects import TABLES, Object
from gpuconsole.model.pod_template import Container, PodSet, PodTemplate
from gpuconsole.model.queues import (
    ClusterQueue,
    ClusterQueuePreemption,
    Cohort,
    FlavorQuotas,
    LocalQueue,
    PreemptionPolicy,
    Quota,
    ResourceFlavor,
    ResourceGroup,
)
from gpuconsole.model.resources import GPU
from gpuconsole.model.snapshot import EVERYTHING, Snapshot, Visibility, VisibilityGap
from gpuconsole.model.state import ClusterState
from gpuconsole.model.workloads import Admission, Condition, PodSetAssignment, Workload

START: Time = 1_767_600_000_000_000
NOTHING = Quota()
A100 = ResourceFlavor(name="a100", node_labels={"accelerator": "nvidia-a100-80gb"})


def world(
    objects: Iterable[Object], now: Time = START, recent: Iterable[HistoryEvent] = (), seen: Visibility = EVERYTHING
) -> Snapshot:
    """A Snapshot of these objects at `now`."""
    state = ClusterState(now)
    state.seen = seen
    for thing in objects:
        state.apply(Applied(now, thing))
    for line in recent:
        state.apply(line)
    return state.freeze()


def unseen(*kinds: type[Object], within: tuple[str, ...] = ()) -> Visibility:
    """These kinds may not be listed, or in these namespaces only."""
    tables = [TABLES[kind] for kind in kinds]
    return Visibility(
        gaps=tuple(
            VisibilityGap(table=table, resource=table, why=f"cannot list {table}", namespaces=within)
            for table in tables
        )
    )


def group(quotas: Mapping[str, Quota], resource: str = GPU) -> ResourceGroup:
    """One resource, flavor → quota."""
    flavors = tuple(FlavorQuotas(flavor, {resource: quota}) for flavor, quota in quotas.items())
    return ResourceGroup((resource,), flavors)


def cluster_queue(name: str, cohort: str = "", quota: Quota = NOTHING, **fields: object) -> ClusterQueue:
    """A ClusterQueue with a quota of GPUs in flavor a100, open to all namespaces."""
    given: dict[str, object] = {
        "resource_groups": (group({"a100": quota}),),
        "namespace_selector": LabelSelector(),
        "preemption": ClusterQueuePreemption(PreemptionPolicy.LOWER_PRIORITY, PreemptionPolicy.ANY),
        **fields,
    }
    return ClusterQueue(name=name, cohort=cohort, **given)  # type: ignore[arg-type]


def cohort(name: str, parent: str = "", quota: Quota | None = None) -> Cohort:
    return Cohort(name=name, parent=parent, resource_groups=(group({"a100": quota}),) if quota is not None else ())


def waiting(name: str, queue: str, gpus: int, message: str = "", minutes_ago: int = 0, **fields: object) -> Workload:
    """A workload of one pod that waits in `queue` (`ns/name`), created some minutes before START."""
    namespace, _, local = queue.partition("/")
    created = START - minutes_ago * MINUTE
    template = PodTemplate(containers=(Container(requests={GPU: gpus}),))
    conditions = (Condition("QuotaReserved", False, "Pending", message, created),) if message else ()
    given: dict[str, object] = {"uid": name, "created": created, "conditions": conditions, **fields}
    return Workload(
        namespace=namespace,
        name=name,
        queue=local,
        pod_sets=(PodSet(template=template),),
        **given,  # type: ignore[arg-type]
    )


def running(name: str, queue: str, gpus: int, into: str, minutes_ago: int = 0, **fields: object) -> Workload:
    """One pod that runs on quota of flavor a100 in ClusterQueue `into`, since some minutes before START."""
    since = START - minutes_ago * MINUTE
    assignment = PodSetAssignment(flavors={GPU: "a100"}, usage={GPU: gpus})
    conditions = (
        Condition("QuotaReserved", True, "QuotaReserved", "", since),
        Condition("Admitted", True, "Admitted", "", since),
        Condition("PodsReady", True, "PodsReady", "", since),
    )
    admission = Admission(cluster_queue=into, pod_sets=(assignment,))
    given: dict[str, object] = {"conditions": conditions, "admission": admission, **fields}
    return waiting(name, queue, gpus, minutes_ago=minutes_ago, **given)  # type: ignore[arg-type]


def pod(name: str, node: str = "", gpus: tuple[int, ...] = (), wants: int | None = None, **fields: object) -> Pod:
    """A running pod on a node that owns these GPUs, or a pending one without a node."""
    request = {GPU: wants if wants is not None else len(gpus)}
    phase = PodPhase.RUNNING if node else PodPhase.PENDING
    given: dict[str, object] = {"phase": phase, "template": PodTemplate(containers=(Container(requests=request),))}
    given |= fields
    return Pod(
        namespace="team",
        name=name,
        node=node,
        gpus=gpus,
        **given,  # type: ignore[arg-type]
    )


def node(name: str, gpus: int = 8, **fields: object) -> Node:
    given: dict[str, object] = {"labels": {"accelerator": "nvidia-a100-80gb"}, **fields}
    return Node(name=name, capacity={GPU: gpus}, allocatable={GPU: gpus}, **given)  # type: ignore[arg-type]


ORG_QUEUES: tuple[Object, ...] = (
    Namespace(name="research"),
    Namespace(name="prod"),
    A100,
    cluster_queue("cq-research", "org-cohort", Quota(8, borrowing_limit=8)),
    cluster_queue("cq-prod", "org-cohort", Quota(16, borrowing_limit=0)),
    LocalQueue(namespace="research", name="lq", cluster_queue="cq-research"),
    LocalQueue(namespace="prod", name="lq", cluster_queue="cq-prod"),
)
"""The queues of drill org-cohort: research owns 8 and may borrow 8, prod owns 16 and borrows nothing."""

ORG_WORKLOADS: tuple[Object, ...] = (
    running("llm-ft", "research/lq", 4, "cq-research", minutes_ago=40, priority=500),
    running("embed", "research/lq", 2, "cq-research", minutes_ago=30, priority=500),
    running("serve", "prod/lq", 8, "cq-prod", minutes_ago=60, priority=10_000),
    running("rlhf", "research/lq", 6, "cq-research", minutes_ago=20, priority=500),
)
"""What runs in it: research uses 12 = 8 own + 4 borrowed, prod 8 of its 16."""

ORG = (*ORG_QUEUES, *ORG_WORKLOADS)
