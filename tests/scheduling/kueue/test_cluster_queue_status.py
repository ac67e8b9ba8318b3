"""Whether a ClusterQueue can admit: the reasons and texts of its Active condition."""

import pytest
from msgspec.structs import replace

from gpuconsole.model.clock import parse_time
from gpuconsole.model.events import Applied
from gpuconsole.model.objects import TABLES, Object
from gpuconsole.model.queues import (
    AdmissionCheck,
    CheckRule,
    ClusterQueue,
    Cohort,
    FlavorQuotas,
    Quota,
    ResourceFlavor,
    ResourceGroup,
    StopPolicy,
    Topology,
)
from gpuconsole.model.snapshot import Visibility, VisibilityGap
from gpuconsole.model.state import ClusterState
from gpuconsole.scheduling.kueue.cluster_queue_status import (
    READY,
    ActiveCondition,
    active_condition,
    queues_using_check,
    queues_using_flavor,
    queues_using_topology,
)
from gpuconsole.scheduling.kueue.config import KueueConfig
from gpuconsole.scheduling.kueue.session import KueueSession

START = parse_time("2026-01-05T08:00:00Z")
FLAVORS = tuple(FlavorQuotas(name, {"cpu": Quota(1000)}) for name in ("spot", "tas"))
QUEUE = ClusterQueue(name="q", resource_groups=(ResourceGroup(("cpu",), FLAVORS),))
SPOT, TAS = ResourceFlavor(name="spot"), ResourceFlavor(name="tas", topology="racks")
RACKS = Topology(name="racks", levels=("rack",))
REMOTE = "kueue.x-k8s.io/multikueue"
PROVISIONING = "kueue.x-k8s.io/provisioning-request"
WHOLE: tuple[Object, ...] = (SPOT, TAS, RACKS)


def queue(*checks: CheckRule, **fields: object) -> ClusterQueue:
    return replace(QUEUE, checks=checks, **fields)


def check(name: str, controller: str = "budget", *, active: bool = True) -> AdmissionCheck:
    return AdmissionCheck(name=name, controller=controller, active=active)


def told(*things: Object, config: KueueConfig | None = None) -> ActiveCondition:
    session = KueueSession(config or KueueConfig())
    for thing in things:
        session.apply(thing, START)
    return session.active_condition("q")


CASES: dict[str, tuple[list[Object], str, str]] = {
    "all that it refers to is there": ([QUEUE, *WHOLE], "Ready", "Can admit new workloads"),
    "it does not exist": ([*WHOLE], "NotFound", "ClusterQueue not found"),
    "it is on its way out, whatever else is wrong": (
        [queue(terminating=True)],
        "Terminating",
        "Can't admit new workloads; clusterQueue is terminating",
    ),
    "it is stopped, and a flavor is missing: the first reason stands for all": (
        [queue(stop_policy=StopPolicy.HOLD), TAS, RACKS],
        "Stopped",
        "Can't admit new workloads: is stopped, references missing ResourceFlavor(s): spot.",
    ),
    "flavors are named in the queue's order, checks by name": (
        [queue(CheckRule("b"), CheckRule("a"))],
        "FlavorNotFound",
        "Can't admit new workloads: references missing ResourceFlavor(s): spot,tas, "
        "references missing AdmissionCheck(s): a,b.",
    ),
    "a check's controller holds it inactive": (
        [queue(CheckRule("a")), check("a", active=False), *WHOLE],
        "AdmissionCheckInactive",
        "Can't admit new workloads: references inactive AdmissionCheck(s): a.",
    ),
    "two MultiKueue checks": (
        [queue(CheckRule("a"), CheckRule("b")), check("a", REMOTE), check("b", REMOTE), *WHOLE],
        "MultipleMultiKueueAdmissionChecks",
        "Can't admit new workloads: Cannot use multiple MultiKueue AdmissionChecks on the same ClusterQueue, "
        "found: a,b.",
    ),
    "a MultiKueue check for one flavor": (
        [queue(CheckRule("a", ("spot",))), check("a", REMOTE), *WHOLE],
        "MultiKueueAdmissionCheckAppliedPerFlavor",
        "Can't admit new workloads: Cannot specify MultiKueue AdmissionCheck per flavor, found: a.",
    ),
    "a MultiKueue check that names all flavors": (
        [queue(CheckRule("a", ("tas", "spot"))), check("a", REMOTE), *WHOLE],
        "Ready",
        "Can admit new workloads",
    ),
    "MultiKueue beside ProvisioningRequests": (
        [queue(CheckRule("a"), CheckRule("p")), check("a", REMOTE), check("p", PROVISIONING), *WHOLE],
        "MultiKueueWithProvisioningRequest",
        "Can't admit new workloads: Cannot use both MultiKueue and ProvisioningRequest AdmissionChecks together, "
        "found: a, p.",
    ),
    "a flavor's topology is missing": (
        [QUEUE, SPOT, TAS],
        "TopologyNotFound",
        'Can\'t admit new workloads: there is no Topology "racks" for TAS flavor "tas".',
    ),
    "with a MultiKueue check the workers' topologies count": (
        [queue(CheckRule("a")), check("a", REMOTE), SPOT, TAS],
        "Ready",
        "Can admit new workloads",
    ),
}


@pytest.mark.parametrize(("things", "reason", "message"), CASES.values(), ids=CASES.keys())
def test_the_condition_names_every_obstacle(things: list[Object], reason: str, message: str) -> None:
    assert told(*things) == ActiveCondition(reason == "Ready", reason, message)


@pytest.mark.parametrize("kind", [ResourceFlavor, AdmissionCheck, Topology])
def test_what_may_not_be_seen_is_not_missing(kind: type[Object]) -> None:
    state = ClusterState(START)
    for thing in (*WHOLE, check("budget")):
        if not isinstance(thing, kind):
            state.apply(Applied(START, thing))
    seen = Visibility(gaps=(VisibilityGap(table=TABLES[kind], resource="", why="cannot list them"),))
    checked = queue(CheckRule("budget"))
    assert not active_condition(checked, state.freeze()).active
    assert active_condition(checked, state.freeze(), seen=seen) == READY


def test_without_the_gate_no_topology_is_needed() -> None:
    off = KueueConfig(gates={"TopologyAwareScheduling": False})
    assert told(QUEUE, SPOT, TAS, config=off).reason == "Ready"


def test_searches_for_flavors_start_anew_only_when_quotas_in_the_tree_change() -> None:
    more = (ResourceGroup(("cpu",), (FLAVORS[0], FlavorQuotas("tas", {"cpu": Quota(2000)}))),)
    changes: list[tuple[Object, int]] = [
        (queue(cohort="c"), 1),
        (ClusterQueue(name="mate", cohort="c"), 2),
        (queue(CheckRule("a"), cohort="c", stop_policy=StopPolicy.HOLD), 2),
        (queue(cohort="c", resource_groups=more), 3),
        (Cohort(name="c", parent="root"), 4),
        (ClusterQueue(name="mate", cohort="c", resource_groups=more), 5),
        (ClusterQueue(name="stranger", cohort="other", resource_groups=more), 5),
        (queue(resource_groups=more), 6),
        (ClusterQueue(name="mate", cohort="c"), 6),
    ]
    session = KueueSession(KueueConfig())
    seen = []
    for thing, _ in changes:
        session.apply(thing, START)
        session.requeue_inadmissible(START)
        seen.append(session.dump().generations["q"])
    assert seen == [count for _, count in changes]


def test_who_depends_on_what() -> None:
    queues = [queue(CheckRule("a")), ClusterQueue(name="other")]
    assert queues_using_flavor(queues, "spot") == ["q"]
    assert queues_using_check(queues, "a") == ["q"]
    assert queues_using_topology(queues, [SPOT, TAS], "racks") == ["q"]
    assert (
        queues_using_flavor(queues, "gone"),
        queues_using_check(queues, "b"),
        queues_using_topology(queues, [SPOT], "racks"),
    ) == (
        [],
        [],
        [],
    )
