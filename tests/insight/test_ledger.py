"""The ledger: who lends to whom, who goes if a lender returns, and who starves beside its own quota."""

from collections.abc import Iterable
from typing import Any

from msgspec.structs import replace

from gpuconsole.insight.sharing.fair_shares import Loan, borrowed_parts, loans
from gpuconsole.insight.sharing.ledger import LoanLedger, ReclaimScenario, ReclaimVictim, Starving, ledger
from gpuconsole.model.clock import MINUTE
from gpuconsole.model.cluster import Namespace
from gpuconsole.model.labels import LabelSelector
from gpuconsole.model.objects import Object
from gpuconsole.model.prices import Prices
from gpuconsole.model.queues import (
    ClusterQueue,
    ClusterQueuePreemption,
    FlavorQuotas,
    LocalQueue,
    PreemptionPolicy,
    Quota,
    ResourceGroup,
    StopPolicy,
)
from gpuconsole.model.resources import CPU, GPU
from gpuconsole.model.snapshot import Snapshot
from gpuconsole.model.workloads import Admission, PodSetAssignment, Workload
from gpuconsole.scheduling.kueue.session import KueueSession
from gpuconsole.ui.answers.cluster_reports import ledger_lines
from tests.support.snapshots import A100, ORG, START, cluster_queue, cohort, running, waiting, world

NEVER, LOWER, ANY = PreemptionPolicy.NEVER, PreemptionPolicy.LOWER_PRIORITY, PreemptionPolicy.ANY


def engine(snapshot: Snapshot) -> KueueSession:
    session = KueueSession()
    for thing in snapshot.objects():
        session.apply(thing, snapshot.time)
    return session


def asked(*things: Object) -> LoanLedger:
    snapshot = world(things)
    return ledger(snapshot, engine(snapshot), Prices())


def pairs(things: Iterable[Any]) -> list[tuple[str, str, int]]:
    return [(loan.lender, loan.borrower, loan.gpus) for loan in loans(world(things))]


def queue(name: str, into: str) -> LocalQueue:
    return LocalQueue(namespace=name, name="lq", cluster_queue=into)


def test_a_loan_names_both_sides_and_since_when_and_its_lender_would_evict_whom() -> None:
    found = asked(*ORG)
    assert found == LoanLedger(
        loans=(
            Loan(
                lender="cq-prod",
                borrower="cq-research",
                flavor="a100",
                resource=GPU,
                gpus=4,
                since=START - 20 * MINUTE,
                workloads=("research/rlhf",),
            ),
        ),
        exposures=(
            ReclaimScenario(
                lender="cq-prod",
                flavor="a100",
                resource=GPU,
                gpus=8,
                possible=True,
                leaving=(
                    ReclaimVictim(
                        workload="research/rlhf",
                        queue="cq-research",
                        gpus=6,
                        rule="reclaim in cohort",
                        lost_gpu_hours=2.0,
                        cost=found.exposures[0].leaving[0].cost,
                    ),
                ),
            ),
        ),
    )
    assert (found.exposures[0].leaving[0].cost or 0) > 0


def test_an_amount_below_nothing_is_no_loan() -> None:
    """Whoever may write a Workload's status may write that."""
    odd = running("odd", "lab/lq", 8, into="lab")
    usage = PodSetAssignment(flavors={GPU: "a100", CPU: "a100"}, usage={GPU: 8, CPU: -4000})
    odd = replace(odd, admission=Admission(cluster_queue="lab", pod_sets=(usage,)))
    door = LocalQueue(namespace="lab", name="lq", cluster_queue="lab")
    queues = (cluster_queue("lab", "org"), cluster_queue("lender", "org", Quota(8)))
    assert borrowed_parts(world([A100, *queues, door, odd])) == {"lab/odd": {("a100", GPU): 8}}


def test_nobody_borrows() -> None:
    assert asked(*ORG[:-1]) == LoanLedger()


def test_of_a_queue_that_is_not_there_nobody_says_that_it_borrows_nothing() -> None:
    hidden = ledger_lines(asked(*(thing for thing in ORG if not isinstance(thing, ClusterQueue))), START)
    assert hidden == ["ClusterQueues cq-prod, cq-research do not exist: their loans are unknown"]
    one = asked(*(thing for thing in ORG if not (isinstance(thing, ClusterQueue) and thing.name == "cq-prod")))
    assert one.unseen == ("cq-prod",)
    assert ledger_lines(one, START)[-1] == "ClusterQueue cq-prod does not exist: its loans are unknown"
    assert ledger_lines(asked(*ORG[:-1]), START) == ["no GPUs are borrowed"]


def test_a_borrower_is_lent_to_by_its_own_cohort_first() -> None:
    things = (
        A100,
        cohort("root"),
        cohort("near", "root"),
        cohort("far", "root"),
        cluster_queue("a", "near", Quota(0)),
        cluster_queue("b", "near", Quota(4)),
        cluster_queue("c", "far", Quota(8)),
        queue("a", "a"),
        running("w", "a/lq", 6, "a"),
    )
    assert pairs(things) == [("b", "a", 4), ("c", "a", 2)]


def test_each_of_two_cohorts_lends_within_itself_before_it_lends_to_the_other() -> None:
    things = (
        A100,
        cohort("root"),
        cohort("near", "root"),
        cohort("far", "root"),
        *(cluster_queue(name, "near", Quota(own)) for name, own in (("a", 0), ("b", 4))),
        *(cluster_queue(name, "far", Quota(own)) for name, own in (("d", 0), ("e", 4))),
        queue("a", "a"),
        queue("d", "d"),
        running("w", "a/lq", 4, "a"),
        running("v", "d/lq", 4, "d"),
    )
    assert pairs(things) == [("b", "a", 4), ("e", "d", 4)]


def test_a_cohort_s_own_pool_is_a_lender_too() -> None:
    things = (A100, cohort("c", quota=Quota(8)), cluster_queue("a", "c"), queue("a", "a"), running("w", "a/lq", 3, "a"))
    assert pairs(things) == [("c", "a", 3)]
    assert asked(*things).exposures == ()


def test_two_that_borrow_share_what_each_lender_lends() -> None:
    things = (
        A100,
        *(cluster_queue(name, "c", Quota(0 if name in "ab" else 4)) for name in "abxy"),
        queue("a", "a"),
        queue("b", "b"),
        running("w", "a/lq", 4, "a"),
        running("v", "b/lq", 4, "b"),
    )
    assert pairs(things) == [("x", "a", 2), ("x", "b", 2), ("y", "a", 2), ("y", "b", 2)]


def test_a_lender_comes_back_with_the_highest_priority_that_anybody_has_in_its_queue() -> None:
    things = (
        A100,
        cluster_queue("a", "c"),
        cluster_queue("b", "c", Quota(8), preemption=ClusterQueuePreemption(NEVER, LOWER)),
        queue("a", "a"),
        queue("b", "b"),
        Namespace(name="b"),
        running("w", "a/lq", 8, "a", priority=5),
        waiting("low", "b/lq", 1, uid="low"),
        waiting("high", "b/lq", 1, uid="high", priority=6),
    )
    everybody, meek = asked(*things), asked(*things[:-1])
    assert [(one.possible, [left.workload for left in one.leaving]) for one in everybody.exposures] == [(True, ["a/w"])]
    assert [(one.possible, one.leaving) for one in meek.exposures] == [(False, ())]


def lender(policy: PreemptionPolicy) -> tuple[Object, ...]:
    """Queue b has 4 GPUs of its own that a uses, and a workload that waits for them."""
    return (
        A100,
        cluster_queue("a", "c"),
        cluster_queue("b", "c", Quota(4), preemption=ClusterQueuePreemption(NEVER, policy)),
        queue("a", "a"),
        queue("b", "b"),
        running("w", "a/lq", 4, "a"),
        waiting("v", "b/lq", 3, uid="v"),
    )


def starves(text: str) -> tuple[Starving, ...]:
    one = Starving(
        queue="b",
        workload="b/v",
        gpus=3,
        flavor="a100",
        resource=GPU,
        unused=4,
        borrowers=(("a", 4),),
        text=text,
    )
    return (one,)


def test_one_that_waits_within_its_own_quota_is_told_why_it_does_not_take_it_back() -> None:
    assert asked(*lender(NEVER)).starving == starves("its reclaimWithinCohort is Never")
    assert asked(*lender(LOWER)).starving == starves(
        "its reclaimWithinCohort is LowerPriority, and no borrower has a lower priority"
    )
    assert asked(*lender(ANY)).starving == starves("it can reclaim them by preempting a/w")


def test_a_lender_without_rights_gets_nothing_back() -> None:
    (exposure,) = asked(*lender(NEVER)).exposures
    assert exposure == ReclaimScenario(
        lender="b", flavor="a100", resource=GPU, gpus=4, possible=False, why_not="its reclaimWithinCohort is Never"
    )


def test_a_lender_that_is_stopped_does_not_return() -> None:
    things = [
        replace(thing, stop_policy=StopPolicy.HOLD) if isinstance(thing, ClusterQueue) and thing.name == "b" else thing
        for thing in lender(ANY)
    ]
    found = asked(*things)
    assert [(one.possible, one.why_not, one.leaving) for one in found.exposures] == [
        (False, "it is inactive (Stopped)", ())
    ]
    assert found.starving == starves("it is inactive (Stopped)")


def test_a_lender_that_nobody_can_come_to_does_not_return() -> None:
    waits, *shared = sorted(lender(ANY), key=lambda thing: not isinstance(thing, Workload) or thing.reserved)
    doorless = [thing for thing in shared if not isinstance(thing, LocalQueue) or thing.cluster_queue != "b"]
    held = [replace(thing, stop_policy=StopPolicy.HOLD) if thing.key == "b/lq" else thing for thing in shared]
    labels = LabelSelector({"team": "b"})
    choosy = [replace(thing, namespace_selector=labels) if thing.key == "b" else thing for thing in shared]
    assert [_why_not(*things) for things in (shared, doorless, held, [*choosy, Namespace(name="b")], choosy)] == [
        "",
        "no LocalQueue references it",
        "each of its LocalQueues is stopped (b/lq)",
        "its namespaceSelector matches none of its LocalQueues' namespaces (b)",
        "",
    ]
    starves_shut = asked(*choosy, waits, Namespace(name="b")).starving
    assert [one.text for one in starves_shut] == [
        "its namespaceSelector matches none of its LocalQueues' namespaces (b)"
    ]


def _why_not(*things: Object) -> str:
    (exposure,) = asked(*things).exposures
    assert exposure.possible is not bool(exposure.why_not)
    return exposure.why_not


def test_what_is_free_costs_nobody_anything() -> None:
    things: tuple[Object, ...] = (
        A100,
        cluster_queue("a", "c", Quota(8)),
        cluster_queue("b", "c", Quota(8)),
        cluster_queue("d", "c", Quota(8)),
        *(queue(name, name) for name in "abd"),
        running("w", "a/lq", 10, "a"),
    )
    assert [(one.lender, one.gpus, one.possible, one.leaving) for one in asked(*things).exposures] == [
        ("b", 8, True, ()),
        ("d", 8, True, ()),
    ]


def test_asking_changes_nothing() -> None:
    snapshot = world(ORG)
    session = engine(snapshot)
    assert ledger(snapshot, session, Prices()) == ledger(snapshot, session, Prices())


def test_two_kinds_of_gpus_in_one_flavor_are_two_loans() -> None:
    amd = "amd.com/gpu"
    both = tuple(FlavorQuotas("a100", {GPU: Quota(own), amd: Quota(2 * own)}) for own in (0, 4))
    none, some = (ResourceGroup((GPU, amd), (quotas,)) for quotas in both)
    borrower = running("w", "a/lq", 2, "a")
    assignment = PodSetAssignment(flavors={GPU: "a100", amd: "a100"}, usage={GPU: 2, amd: 3})
    things = (
        A100,
        cluster_queue("a", "c", resource_groups=(none,)),
        cluster_queue("b", "c", resource_groups=(some,)),
        queue("a", "a"),
        replace(borrower, admission=Admission(cluster_queue="a", pod_sets=(assignment,))),
    )
    found = asked(*things)
    assert [(loan.resource, loan.gpus) for loan in found.loans] == [(amd, 3), (GPU, 2)]
    assert [(one.resource, one.gpus) for one in found.exposures] == [(amd, 8), (GPU, 4)]
