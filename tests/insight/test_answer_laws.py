"""What the answers promise, held against what then happens in forks of clusters that went through anything."""

from collections import Counter
from collections.abc import Iterator

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from gpuconsole.insight.preemption.risk import WorkloadRisk, risk
from gpuconsole.insight.sharing.fair_shares import loans
from gpuconsole.insight.sharing.ledger import ledger
from gpuconsole.insight.sharing.slots import starts
from gpuconsole.insight.whatif.whatif import WhatIf, WhatIfEviction, what_if_steps
from gpuconsole.model.clock import HOUR, MINUTE, SECOND, Span, Time
from gpuconsole.model.commands import (
    Command,
    Cordon,
    SetPreemption,
    SetQuota,
    SetStopPolicy,
    SetTaint,
    SetWeight,
    Submit,
)
from gpuconsole.model.cooperative import complete_answer
from gpuconsole.model.events import HistoryEvent, HistoryEventKind
from gpuconsole.model.labels import Toleration
from gpuconsole.model.objects import Object
from gpuconsole.model.pod_template import PodSet
from gpuconsole.model.queues import Cohort, FlavorQuotas, PreemptionPolicy, Quota, ResourceGroup, StopPolicy
from gpuconsole.model.snapshot import Snapshot
from gpuconsole.model.workloads import Workload
from gpuconsole.sim.engine import Simulation
from tests.support.random_simulations import CLUSTER_COMMANDS, CREATED, LIVES, Deed, cluster, live
from tests.support.sim_cluster import GPU, START, USUAL, queue, template, workload

LIFE = list[tuple[Span, Deed]]
law = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def lived(deeds: LIFE, *more: Object) -> Simulation:
    simulation = Simulation.from_objects([*cluster(), *more], policy=USUAL, seed=1, start=START)
    live(simulation, deeds)
    return simulation


def _there_and_back(snapshot: Snapshot) -> Iterator[tuple[Command, Command]]:
    """Changes that let nobody do more while they last, with their opposites."""
    for one in snapshot.cluster_queues.all():
        yield SetWeight(one.name, one.fair_weight + 1), SetWeight(one.name, one.fair_weight)
        if one.stop_policy is StopPolicy.NONE:
            yield SetStopPolicy(one.name, StopPolicy.HOLD), SetStopPolicy(one.name, StopPolicy.NONE)
        for (flavor, resource), q in one.quotas().items():
            if q.lending_limit is None:
                less, was = (0, q.borrowing_limit, None), (q.nominal, q.borrowing_limit, None)
                yield SetQuota(one.name, flavor, resource, *less), SetQuota(one.name, flavor, resource, *was)
    for node in snapshot.nodes.all():
        if not node.unschedulable:
            yield Cordon(node.name, True), Cordon(node.name, False)
        yield SetTaint(node.name, "once", effect="NoSchedule"), SetTaint(node.name, "once", removed=True)


@law
@given(LIVES, st.data())
def test_a_change_that_is_taken_back_at_once_makes_no_difference(deeds: LIFE, data: st.DataObject) -> None:
    base = lived(deeds)
    # Whoever is touched is tried at once, and not only when wake-ups are gathered, a second later.
    base.advance(base.now + 2 * SECOND)
    change, opposite = data.draw(st.sampled_from(list(_there_and_back(base.snapshot()))))
    answer = complete_answer(what_if_steps(base, (change, opposite), 20 * MINUTE))
    assert answer.empty, answer


def _lost(victim: WhatIfEviction) -> tuple[str, Time, str]:
    return victim.workload, victim.time, victim.by


def _future(answer: WhatIf) -> tuple[object, ...]:
    """How the future with the changes comes out at the horizon."""
    return (
        answer.gpus_total_with,
        answer.waiting,
        answer.checking,
        answer.placeless,
        answer.gpu_hours,
        answer.capacity_hours,
        answer.hourly,
    )


@law
@given(LIVES, st.one_of(CREATED, CLUSTER_COMMANDS), st.one_of(CREATED, CLUSTER_COMMANDS))
def test_two_changes_come_to_the_second_one_in_a_fork_that_has_had_the_first(
    deeds: LIFE, first: Command, second: Command
) -> None:
    base = lived(deeds)
    forked = base.fork()
    forked.submit(first)
    both = complete_answer(what_if_steps(base, (first, second), 20 * MINUTE, against=(first,)))
    then = complete_answer(what_if_steps(forked, (second,), 20 * MINUTE))
    assert _future(both) == _future(then)
    assert [(one.workload, one.admitted, one.nodes) for one in then.outcomes if one.new] == [
        (one.workload, one.admitted, one.nodes) for one in both.outcomes if one.new
    ]
    # Who loses its place by both at one moment has lost it once.
    twice = {v.workload for v in complete_answer(what_if_steps(base, (first,), 0)).evictions if v.time == base.now}
    assert [_lost(v) for v in both.evictions if v.workload not in twice] == [
        _lost(v) for v in then.evictions if v.workload not in twice
    ]


@law
@given(LIVES)
def test_so_many_gangs_start_as_slots_promise(deeds: LIFE) -> None:
    """Of pods that tolerate all taints: what is on nodes with taints is promised to those alone."""
    base = lived(deeds)
    base.advance(base.now + SECOND)
    for promised in starts(base.snapshot()):
        for size, number in promised.now.items():
            if not number:
                continue
            fork = base.fork()
            gangs = [_gang(f"new-{one}", promised.local_queues[0], size) for one in range(number)]
            told = _told_within_a_second(fork, *gangs)
            fork.advance(fork.now + 5 * SECOND)
            after = fork.snapshot()
            pods = [pod for gang in gangs for pod in after.pods.all() if pod.name.startswith(f"{gang.name}-")]
            assert not [line for line in told if line.what is HistoryEventKind.PREEMPTED]
            assert all(after.workloads[gang.key].admitted for gang in gangs)
            assert (len(pods), all(pod.node for pod in pods)) == (sum(gang.pod_sets[0].count for gang in gangs), True)


def _gang(name: str, door: str, gpus: int) -> Workload:
    """One pod where a node is large enough, else pods as large as a node of four GPUs."""
    namespace, _, queue_name = door.partition("/")
    pods = max(1, gpus // 4)
    shape = replace(template(gpus // pods), tolerations=(Toleration(operator="Exists"),))
    gang = workload(name, namespace, duration="1h")
    return replace(gang, queue=queue_name, pod_sets=(PodSet(count=pods, template=shape),))


@law
@given(LIVES)
def test_who_goes_if_a_lender_returns_is_who_goes_when_it_returns(deeds: LIFE) -> None:
    base = lived([(0, borrow), *deeds])
    assert base.session is not None
    snapshot = base.snapshot()
    waits = [one for one in snapshot.workloads.all() if not one.reserved and not one.finished]
    for exposure in ledger(snapshot, base.session, base.policy.prices).exposures:
        door = snapshot.local_queues[f"{exposure.lender}/lq"]
        if waits or door.stop_policy is not StopPolicy.NONE or not exposure.possible:
            continue
        of_its_own = [one for one in snapshot.workloads.all() if one.cluster_queue == exposure.lender and one.reserved]
        usual = max((one.priority for one in of_its_own if not one.finished), default=0)
        back = replace(workload("back", exposure.lender, pods=exposure.gpus, duration="1h"), priority=usual)
        told = _told_within_a_second(base.fork(), back)
        gone = [line.workload for line in told if line.what is HistoryEventKind.PREEMPTED and line.by == back.key]
        # Who was evicted before, and has not gone yet, need not be evicted again.
        leave = {one.key for one in snapshot.workloads.all() if one.is_true("Evicted")}
        assert sorted(gone) == sorted(one.workload for one in exposure.leaving if one.workload not in leave)


def borrow(simulation: Simulation) -> None:
    """Blue borrows three of red's four GPUs."""
    simulation.submit(Submit((workload("large", "blue", gpus=4), workload("small", "blue", pods=3))))


def _told_within_a_second(fork: Simulation, *submitted: Object) -> list[HistoryEvent]:
    fork.drain()
    fork.submit(Submit(submitted))
    fork.advance(fork.now + SECOND)
    return [line for line in fork.drain() if isinstance(line, HistoryEvent)]


POOL = 2
"""GPUs of the cohort itself that red and blue are in."""
NESTED: list[Object] = [
    Cohort(
        name="org",
        parent="root",
        resource_groups=(ResourceGroup((GPU,), (FlavorQuotas("a100", {GPU: Quota(POOL)}),)),),
    ),
    *queue("green", 3, cohort="root"),
    *queue("yellow", 1, cohort="root"),
]


@law
@given(LIVES)
def test_all_that_is_borrowed_is_lent_by_somebody_who_has_it(deeds: LIFE) -> None:
    simulation = Simulation.from_objects([*cluster(), *NESTED], policy=USUAL, seed=1, start=START)
    for deed in deeds:
        live(simulation, [deed])
        _the_books_balance(simulation.snapshot())


def _the_books_balance(snapshot: Snapshot) -> None:
    queues = [one for one in snapshot.cluster_queues.all() if one.cohort]
    used: Counter[str] = Counter()
    for holder in snapshot.workloads.all():
        # Kueue no longer counts what was stopped, also while its pods end.
        if holder.active and holder.reserved and not holder.finished:
            used[holder.cluster_queue] += holder.gpus
    owned = {one.name: sum(quota.nominal for quota in one.quotas().values()) for one in queues}
    borrowed = {name: max(0, used[name] - own) for name, own in owned.items()}
    spare = {name: max(0, own - used[name]) for name, own in owned.items()} | {"org": POOL}
    by, to = Counter[str](), Counter[str]()
    for loan in loans(snapshot):
        by[loan.lender] += loan.gpus
        to[loan.borrower] += loan.gpus
    assert all(gpus <= spare[lender] for lender, gpus in by.items()), "nobody lends what it uses itself"
    assert all(gpus <= borrowed[borrower] for borrower, gpus in to.items()), "nobody is lent what it does not use"
    trees: dict[str, list[str]] = {}
    for one in queues:
        trees.setdefault("root" if one.cohort == "org" else one.cohort, []).append(one.name)
    for root, names in trees.items():
        # Where quota was cut under running work, what nobody has is lent by nobody.
        has = sum(owned[name] for name in names) + (POOL if root == "root" else 0)
        if sum(used[name] for name in names) <= has:
            assert sum(to[name] for name in names) == sum(borrowed[name] for name in names)


@settings(law, max_examples=10)
@given(LIVES)
def test_what_no_rule_can_evict_is_in_no_danger(deeds: LIFE) -> None:
    """No queue may preempt, and pods without a queue are as important as those with one."""
    base = lived(deeds)
    for name in ("red", "blue"):
        base.submit(SetPreemption(name, PreemptionPolicy.NEVER, PreemptionPolicy.NEVER))
        base.submit(SetStopPolicy(name, StopPolicy.NONE))
    base.advance(base.now + MINUTE)
    found = risk(base, runs=3, seed=5, horizon=HOUR)
    assert [one.workload for one in found.workloads if one.turns or _preempted(one)] == []


def _preempted(danger: WorkloadRisk) -> bool:
    return any(cause.by_queue for cause in danger.causes)
