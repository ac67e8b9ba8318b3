"""Starved queues have one definition, and available quota is told per flavor, with what pending workloads could use."""

from msgspec.structs import replace

from gpuconsole.insight.health.alerts import AlertKind
from gpuconsole.insight.index.available_quota import UsableQuota, usable_quota
from gpuconsole.insight.index.capacity import StarvedQueue, StarvedQuota, starved_queues
from gpuconsole.insight.overview import dashboard
from gpuconsole.insight.sharing.ledger import ledger
from gpuconsole.model.clock import MINUTE
from gpuconsole.model.labels import Taint
from gpuconsole.model.objects import Object
from gpuconsole.model.pod_template import Container, PodSet, PodTemplate
from gpuconsole.model.prices import Prices
from gpuconsole.model.queues import LocalQueue, QueueingStrategy, Quota, ResourceFlavor
from gpuconsole.model.resources import GPU
from gpuconsole.model.snapshot import Snapshot
from gpuconsole.model.workloads import Admission, PodSetAssignment, Workload
from gpuconsole.scheduling.kueue.session import KueueSession
from gpuconsole.ui.paint import Cell, painted
from gpuconsole.ui.queue_table import GPUS, name_cell, tree_rows
from gpuconsole.ui.screens.queues import about
from tests.support.snapshots import START, cluster_queue, cohort, group, running, waiting, world

H100 = ResourceFlavor(name="h100", node_labels={"gpu": "h100"})
A100 = ResourceFlavor(name="a100", node_labels={"gpu": "a100"})


def queue(name: str, strategy: QueueingStrategy = QueueingStrategy.BEST_EFFORT_FIFO, **quotas: int) -> list[Object]:
    groups = (group({flavor: Quota(nominal) for flavor, nominal in quotas.items()}),)
    own = cluster_queue(name, "org", resource_groups=groups, queueing_strategy=strategy)
    return [own, LocalQueue(namespace=name, name="lq", cluster_queue=name)]


def holds(name: str, owner: str, gpus: int, flavor: str) -> Workload:
    assignment = PodSetAssignment(flavors={GPU: flavor}, usage={GPU: gpus})
    one = running(name, f"{owner}/lq", gpus, owner)
    return replace(one, admission=Admission(cluster_queue=owner, pod_sets=(assignment,)))


def wants(name: str, owner: str, gpus: int, minutes: int = 0, **selector: str) -> Workload:
    one = waiting(name, f"{owner}/lq", gpus, minutes_ago=minutes)
    template = PodTemplate(containers=(Container(requests={GPU: gpus}),), node_selector=selector)
    return replace(one, pod_sets=(PodSet(template=template),))


def cluster(*more: Object) -> Snapshot:
    """Vision borrows 4 h100 of speech, which has 4 of its 8; a100 are idle."""
    return world(
        [
            H100,
            A100,
            cohort("org"),
            *queue("vision", h100=8, a100=8),
            *queue("speech", h100=8, a100=8),
            holds("train", "vision", 12, "h100"),
            holds("serve", "speech", 4, "h100"),
            *more,
        ]
    )


def text(cell: Cell) -> str:
    return "".join(piece for piece, _ in painted(cell))


def test_a_queue_is_starved_if_it_has_pending_workloads_below_its_nominal_quota_while_another_one_borrows() -> None:
    snapshot = cluster(wants("new", "speech", 16, 3), wants("old", "speech", 8, 12))
    quota = StarvedQuota(flavor="h100", resource=GPU, used=4, nominal=8, borrowers=(("vision", 4),))
    assert starved_queues(snapshot) == {
        "speech": StarvedQueue(
            queue="speech", pending=2, oldest="speech/old", since=START - 12 * MINUTE, quotas=(quota,)
        )
    }


def test_no_queue_is_starved_without_pending_workloads_or_borrowers_or_at_its_nominal_quota() -> None:
    assert starved_queues(cluster()) == {}
    assert starved_queues(cluster(wants("w", "vision", 4))) == {}
    assert starved_queues(cluster(wants("w", "speech", 4), holds("more", "speech", 4, "h100"))) == {}
    nobody_borrows = [H100, cohort("org"), *queue("vision", h100=8), *queue("speech", h100=8), wants("w", "speech", 9)]
    assert starved_queues(world(nobody_borrows)) == {}


def test_quota_of_a_resource_that_no_pending_workload_requests_starves_nobody() -> None:
    cpu = replace(wants("w", "speech", 0), pod_sets=(PodSet(template=PodTemplate()),))
    assert starved_queues(cluster(cpu)) == {}


def test_dashboard_tree_and_ledger_mark_the_same_starved_queues_with_the_oldest_wait() -> None:
    snapshot = cluster(wants("old", "speech", 8, 12))
    numbers = dashboard(snapshot)
    (line,) = [one for one in numbers.attention if one.trouble is AlertKind.STARVED]
    assert (line.table, line.key) == ("cluster_queues", "speech")
    assert line.text == (
        "speech is starved: 1 pending, the oldest for 12m; uses 4 of its 8 h100 GPUs while vision borrows 4"
    )
    names = [text(name_cell(row)).strip() for row in tree_rows(numbers.queues, {}, GPUS, snapshot.time)]
    assert [name for name in names if "starved" in name] == ["▾ speech ⚠ starved 12m"]
    session = KueueSession()
    for thing in snapshot.objects():
        session.apply(thing, START)
    assert {one.queue for one in ledger(snapshot, session, Prices()).starving} == {"speech"}


def test_available_quota_is_told_per_flavor_with_what_pending_workloads_could_use() -> None:
    """Of 8 idle a100 a pod of 6 fits; of those that want h100 none does, and 17 never fit."""
    snapshot = cluster(
        wants("h", "speech", 4, 9, gpu="h100"), wants("big", "speech", 17, 8), wants("fits", "speech", 6, 7)
    )
    assert usable_quota(snapshot, "speech") == (
        UsableQuota("h100", GPU, 0, 0, 16),
        UsableQuota("a100", GPU, 16, 6, 16),
    )
    row = next(row for row in tree_rows(dashboard(snapshot).queues, {}, GPUS) if row.node.name == "speech")
    line = text(about(row, usable_quota(snapshot, "speech"), snapshot.time)[0])
    assert line == (
        " ClusterQueue speech  gpu: available h100 0 (max 16), a100 16 (max 16) · usable by pending workloads: a100 6"
    )


def test_flavors_are_never_added_up_for_one_workload() -> None:
    """16 idle GPUs in two flavors of 8: a pod of 12 can use none of them."""
    things = [H100, A100, *queue("q", h100=8, a100=8), wants("w", "q", 12)]
    assert [(one.flavor, one.available, one.usable) for one in usable_quota(world(things), "q")] == [
        ("h100", 8, 0),
        ("a100", 8, 0),
    ]


def test_behind_a_head_that_does_not_fit_a_strict_fifo_uses_nothing() -> None:
    strict = queue("q", QueueingStrategy.STRICT_FIFO, h100=8)
    jobs = [wants("big", "q", 12, 9), wants("small", "q", 2, 1)]
    assert [one.usable for one in usable_quota(world([H100, *strict, *jobs]), "q")] == [0]
    assert [one.usable for one in usable_quota(world([H100, *queue("q", h100=8), *jobs]), "q")] == [2]


def test_a_flavor_whose_taints_a_workload_does_not_tolerate_is_of_no_use_to_it() -> None:
    tainted = replace(H100, node_taints=(Taint("spot", "true", "NoSchedule"),))
    things = [tainted, A100, *queue("q", h100=8, a100=8), wants("w", "q", 4)]
    assert [(one.flavor, one.usable) for one in usable_quota(world(things), "q")] == [("h100", 0), ("a100", 4)]
