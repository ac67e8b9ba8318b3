"""Answers agree with each other and with the engine, whatever a cluster went through."""

from collections import Counter
from collections.abc import Sequence

from hypothesis import example, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from gpuconsole.insight.index.fragmentation import SIZES
from gpuconsole.insight.index.queues import pending, positions
from gpuconsole.insight.index.quota_tree import NodeKind, every, quota_tree
from gpuconsole.insight.pending.reasons import PendingReason, code_of
from gpuconsole.insight.pending.why import rehearsal_of, rehearsal_on, view_on, why
from gpuconsole.insight.preemption.history import PreemptionRow, rows
from gpuconsole.insight.sharing.fair_shares import loans, shares
from gpuconsole.insight.sharing.ledger import ReclaimScenario, ledger
from gpuconsole.insight.sharing.slots import starts
from gpuconsole.insight.whatif.whatif import WhatIf, what_if_steps
from gpuconsole.model.clock import MINUTE, SECOND
from gpuconsole.model.commands import Command, Submit
from gpuconsole.model.cooperative import complete_answer
from gpuconsole.model.events import Admit, HistoryEvent, HistoryEventKind, Preempt
from gpuconsole.model.labels import Toleration
from gpuconsole.model.pod_template import Container, PodSet, PodTemplate
from gpuconsole.model.prices import Prices
from gpuconsole.model.resources import is_gpu
from gpuconsole.model.snapshot import Snapshot
from gpuconsole.model.workloads import Workload
from gpuconsole.sim.admission_simulator import AdmissionSimulator
from gpuconsole.sim.engine import Simulation
from tests.insight.test_answer_laws import LIFE, NESTED, borrow, law, lived
from tests.support.random_admission import random_rehearsal
from tests.support.random_simulations import CLUSTER_COMMANDS, CREATED, LIVES
from tests.support.sim_cluster import template, workload
from tests.support.snapshots import world

CHANGES = st.lists(st.one_of(CREATED, CREATED, CLUSTER_COMMANDS), min_size=1, max_size=3)
SEEDS = st.integers(0, 10**6)
AHEAD = 20 * MINUTE
many = settings(law, max_examples=200)


@law
@given(LIVES, CHANGES, CHANGES)
def test_two_lists_of_changes_compared_either_way_round_mirror_each_other(
    deeds: LIFE, one: Sequence[Command], other: Sequence[Command]
) -> None:
    base = lived(deeds)
    there = complete_answer(what_if_steps(base, one, AHEAD, against=other))
    back = complete_answer(what_if_steps(base, other, AHEAD, against=one))
    assert (there.evictions, there.evictions_without) == (back.evictions_without, back.evictions)
    assert there.shifts == tuple(replace(shift, without=shift.changed, changed=shift.without) for shift in back.shifts)
    assert (there.outcomes, there.against) == (back.against, back.outcomes)
    assert _at_the_horizon(there) == tuple(reversed(_at_the_horizon(back)))


def _at_the_horizon(found: WhatIf) -> tuple[tuple[object, ...], tuple[object, ...]]:
    without = (found.waiting_without, found.checking_without, found.placeless_without, found.median_wait_without)
    held = (found.gpu_hours_without, found.capacity_hours_without, found.lost_gpu_hours_without, found.cost_without)
    changed = (found.waiting, found.checking, found.placeless, found.median_wait)
    return (*without, *held), (*changed, found.gpu_hours, found.capacity_hours, found.lost_gpu_hours, found.cost)


@law
@given(LIVES, CHANGES)
def test_the_victims_of_a_what_if_are_those_of_the_history_that_it_would_make(
    deeds: LIFE, changes: Sequence[Command]
) -> None:
    base = lived([(0, borrow), *deeds])
    found = complete_answer(what_if_steps(base, changes, AHEAD))
    history, anyway = _preempted(base, changes), {(row.victim, row.by) for row in _preempted(base)}
    told = {(victim.workload, victim.by, victim.time, victim.rule) for victim in found.evictions if victim.by}
    assert told <= {(row.victim, row.by, row.time, row.rule) for row in history}
    assert {(row.victim, row.by) for row in history} - anyway <= {(name, by) for name, by, _, _ in told}
    lost = sum(row.lost_gpu_hours for row in history if row.lost_gpu_hours is not None)
    assert lost <= found.lost_gpu_hours + 1e-9


def _preempted(base: Simulation, changes: Sequence[Command] = ()) -> list[PreemptionRow]:
    fork = base.fork()
    fork.drain()
    for command in changes:
        fork.submit(command)
    fork.advance(fork.now + AHEAD)
    return rows([line for line in fork.drain() if isinstance(line, HistoryEvent)])


@many
@given(SEEDS)
@example(4110)
@example(320410)
def test_places_in_a_queue_are_those_of_the_engine(seed: int) -> None:
    rehearsal = random_rehearsal(seed)
    snapshot = _shown(rehearsal)
    for queue in snapshot.cluster_queues:
        order = [waiting.workload.key for waiting in rehearsal.session.pending_workloads(queue)]
        shown = [waiting.workload.key for waiting in pending(snapshot, queue)]
        assert [positions(snapshot)[key] for key in shown] == list(range(1, len(shown) + 1))
        if shown != order:
            # A preemptor stays first also when another cycle told it something else: then no object says so.
            preemptor = order[0]
            tried = {
                entry.request.workload.key: entry for entry in rehearsal.session.examine_cycle(rehearsal.now, preemptor)
            }
            assert tried[preemptor].preemptor
            said = snapshot.workloads[preemptor].condition("QuotaReserved")
            assert said is not None
            assert code_of(said.message) is not PendingReason.WAITING_FOR_VICTIMS
            shown.remove(preemptor)
            order.remove(preemptor)
        assert shown == order


@law
@given(LIVES)
def test_what_a_snapshot_shows_is_enough_for_the_answers_about_now(deeds: LIFE) -> None:
    """As on a live cluster and in a file, where nobody has the engine that decided."""
    base = lived(deeds)
    base.advance(base.now + 2 * SECOND)
    snapshot, session = base.snapshot(), base.session
    standing = view_on(snapshot, base.policy)
    assert session is not None
    assert standing.session is not None
    assert ledger(snapshot, standing.session, base.policy.prices) == ledger(snapshot, session, base.policy.prices)
    assert shares(standing.session, snapshot.time) == shares(session, snapshot.time)
    for one in snapshot.workloads.all():
        theirs = why(snapshot, rehearsal_on(snapshot, base.policy.kueue), one.key)
        ours = why(snapshot, rehearsal_of(base, snapshot), one.key)
        # Only the engine knows who is parked, and so who is tried before it.
        assert theirs.code == ours.code or theirs.head != ours.head
        assert (theirs.considered, theirs.rooms, theirs.never) == (ours.considered, ours.rooms, ours.never)


@law
@given(LIVES)
def test_no_more_gangs_start_than_slots_promise(deeds: LIFE) -> None:
    base = lived(deeds)
    base.advance(base.now + SECOND)
    for promised in starts(base.snapshot()):
        assert [promised.now[size] for size in SIZES] == sorted(promised.now.values(), reverse=True)
        for size in SIZES[:4] if promised.local_queues else ():
            fork, door = base.fork(), promised.local_queues[0]
            fork.drain()
            fork.submit(Submit(tuple(_gang(f"new-{n}", door, size) for n in range(promised.now[size] + 1))))
            fork.advance(fork.now + SECOND)
            lines = [line for line in fork.drain() if isinstance(line, HistoryEvent)]
            started = sum(line.what is HistoryEventKind.STARTED and "/new-" in line.workload for line in lines)
            # Others may have made room within that second.
            assert started <= promised.now[size] or any(line.what in _ROOM for line in lines)


_ROOM = (
    HistoryEventKind.PREEMPTED,
    HistoryEventKind.EVICTED,
    HistoryEventKind.POD_EVICTED,
    HistoryEventKind.FINISHED,
    HistoryEventKind.FAILED,
    HistoryEventKind.NODE_UP,
)


def _gang(name: str, door: str, gpus: int) -> Workload:
    """Pods of at most four GPUs, which go wherever a node is not cordoned."""
    namespace, _, queue = door.partition("/")
    pods = max(1, gpus // 4)
    shape = replace(template(gpus // pods), tolerations=(Toleration(key="spare", operator="Exists"),))
    return replace(workload(name, namespace), queue=queue, pod_sets=(PodSet(count=pods, template=shape),))


@law
@given(LIVES)
def test_what_the_queues_lend_and_borrow_is_what_the_ledger_says(deeds: LIFE) -> None:
    _the_ledger_is_that_of_the_queues(lived(deeds, *NESTED).snapshot())


@many
@given(SEEDS)
def test_loans_of_several_flavors_and_levels_are_those_of_the_queues(seed: int) -> None:
    _the_ledger_is_that_of_the_queues(_shown(random_rehearsal(seed)))


def _the_ledger_is_that_of_the_queues(snapshot: Snapshot) -> None:
    lent, borrowed = Counter[tuple[str, str, str]](), Counter[tuple[str, str, str]]()
    for loan in loans(snapshot):
        assert loan.workloads
        lent[loan.lender, loan.flavor, loan.resource] += loan.gpus
        borrowed[loan.borrower, loan.flavor, loan.resource] += loan.gpus
    for node, _ in every(quota_tree(snapshot)):
        if node.kind is NodeKind.CLUSTER_QUEUE:
            for use in node.flavors:
                if is_gpu(use.resource):
                    assert lent[node.name, use.flavor, use.resource] == use.lent
                    assert borrowed[node.name, use.flavor, use.resource] <= use.borrowed


def _shown(rehearsal: AdmissionSimulator) -> Snapshot:
    """What is there, as a cluster would show it."""
    objects = rehearsal.session.compiled_config.objects
    tables = (objects.cluster_queues, objects.cohorts, objects.local_queues, objects.flavors, objects.namespaces)
    things = [thing for table in tables for thing in table.values()]
    return world([*things, *rehearsal.workloads.values()], now=rehearsal.now)


@many
@given(SEEDS)
def test_who_goes_for_a_lender_of_several_flavors_goes_when_it_asks_for_all_of_its_own(seed: int) -> None:
    rehearsal = random_rehearsal(seed)
    snapshot = _shown(rehearsal)
    for exposure in ledger(snapshot, rehearsal.session, Prices()).exposures:
        if any(one.topology for one in snapshot.flavors.all()) or not exposure.possible:
            continue
        fork, back = rehearsal.fork(), _asking_for_all(snapshot, exposure)
        for one in snapshot.workloads.all():
            if not one.reserved and not one.finished:
                fork.delete("workloads", one.key)
        fork.requeue_inadmissible()
        fork.apply(back)
        decided = fork.run_cycle()
        gone = [one.workload for one in decided if isinstance(one, Preempt)]
        assert sorted(gone) == sorted(one.workload for one in exposure.leaving)
        assert gone or any(isinstance(one, Admit) and one.workload == back.key for one in decided)


def _asking_for_all(snapshot: Snapshot, exposure: ReclaimScenario) -> Workload:
    """The lender's own, of its usual priority, and of no other flavor."""
    doors = {door.key for door in snapshot.local_queues.all() if door.cluster_queue == exposure.lender}
    mine = [one for one in snapshot.workloads.all() if not one.finished and (one.active or one.reserved)]
    priorities = [
        one.priority for one in mine if exposure.lender == (one.cluster_queue or "") or one.local_queue in doors
    ]
    shape = PodTemplate(
        containers=(Container(requests={exposure.resource: exposure.gpus}),),
        node_selector=dict(snapshot.flavors[exposure.flavor].node_labels),
        tolerations=(Toleration(operator="Exists"),),
    )
    namespace, _, queue = min(doors).partition("/")
    return Workload(
        namespace=namespace,
        name="back",
        uid="z",
        queue=queue,
        created=snapshot.time,
        priority=max(priorities, default=0),
        pod_sets=(PodSet(count=1, template=shape),),
    )
