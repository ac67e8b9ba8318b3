"""MultiKueue's rules: whom a workload is offered to, and what becomes of it when its copies change."""

import pytest
from msgspec.structs import replace

from gpuconsole.model.clock import MINUTE
from gpuconsole.model.workloads import Admission, CheckState, Condition, Workload
from gpuconsole.scheduling.kueue.admission_checks import (
    ROUND_DURATION,
    ClusterNomination,
    MultiKueueActions,
    MultiKueueGroup,
    next_multikueue_actions,
    nominate_all,
    nominate_incrementally,
    skips_nomination,
)
from gpuconsole.scheduling.kueue.config import MultiKueueSettings

NOW = 100 * MINUTE
CHECK = CheckState(name="fleet")
READY = CheckState(name="fleet", state="Ready", message='The workload was admitted on "east"')
WAITS = Workload(
    name="train",
    conditions=(Condition("QuotaReserved", True),),
    admission=Admission(cluster_queue="red"),
    checks=(CHECK,),
)
RUNS = replace(WAITS, checks=(READY,), cluster="east")


def copy(*conditions: str, since: int = 0) -> Workload:
    return Workload(name="train", conditions=tuple(Condition(c, True, c, f"is {c}", since) for c in conditions))


LOST_AFTER = MultiKueueSettings().worker_lost_timeout
STEPS = {
    "without quota there are no copies": (
        MultiKueueGroup(local=replace(WAITS, conditions=()), check=CHECK, copies={"east": copy(), "west": None}),
        MultiKueueActions(delete_copies=("east",)),
    ),
    "with quota it is offered": (
        MultiKueueGroup(local=WAITS, check=CHECK, copies={"east": None, "west": None}),
        MultiKueueActions(nominate=True),
    ),
    "but not before its other checks are ready": (
        MultiKueueGroup(
            local=replace(WAITS, checks=(CHECK, CheckState(name="budget"))), check=CHECK, copies={"east": None}
        ),
        MultiKueueActions(),
    ),
    "quota on a worker is not enough": (
        MultiKueueGroup(local=WAITS, check=CHECK, copies={"east": copy("QuotaReserved")}),
        MultiKueueActions(nominate=True),
    ),
    "the first that admits it runs it": (
        MultiKueueGroup(
            local=WAITS, check=CHECK, copies={"east": copy("Admitted", since=5), "west": copy("Admitted", since=3)}
        ),
        MultiKueueActions(
            check=replace(CHECK, state="Ready", message='The workload was admitted on "west"'),
            cluster="west",
            delete_copies=("east",),
        ),
    ),
    "it is done when its copy is": (
        MultiKueueGroup(local=RUNS, check=READY, copies={"east": copy("Admitted", "Finished")}),
        MultiKueueActions(finish=("Finished", "is Finished")),
    ),
    "a copy that is out of sync is no end": (
        MultiKueueGroup(
            local=RUNS,
            check=READY,
            copies={"east": Workload(name="train", conditions=(Condition("Finished", True, "OutOfSync"),))},
        ),
        MultiKueueActions(
            check=replace(
                READY,
                state="Retry",
                message='Remote workload on worker cluster "east" is out of sync with its user job, '
                'resetting for re-dispatch, Previously: "Ready"',
            )
        ),
    ),
    "an eviction on the worker sends it back": (
        MultiKueueGroup(local=RUNS, check=READY, copies={"east": copy("Admitted", "Evicted")}),
        MultiKueueActions(
            check=replace(
                READY,
                state="Retry",
                message='Workload evicted on worker cluster: "east", resetting for re-admission. Previously: "Ready"',
            )
        ),
    ),
    "an eviction on the manager stops the copy": (
        MultiKueueGroup(
            local=RUNS.with_condition(Condition("Evicted", True, "Preempted", "for urgent")),
            check=CHECK,
            copies={"east": copy("Admitted")},
        ),
        MultiKueueActions(deactivate=("east", "Evicted on manager: for urgent")),
    ),
    "a lost cluster is waited for": (
        MultiKueueGroup(local=RUNS, check=READY, copies={"west": None}, unreachable={"east": NOW - MINUTE}),
        MultiKueueActions(reconcile_at=NOW - MINUTE + LOST_AFTER),
    ),
    "and given up": (
        MultiKueueGroup(local=RUNS, check=READY, copies={"west": None}, unreachable={"east": NOW - LOST_AFTER}),
        MultiKueueActions(check=replace(READY, state="Retry", message='Admitting remote lost, Previously: "Ready"')),
    ),
    "a copy that is gone from a cluster that answers is not waited for": (
        MultiKueueGroup(local=RUNS, check=READY, copies={"east": None}),
        MultiKueueActions(
            check=replace(READY, state="Retry", message='Admitting remote no longer exists, Previously: "Ready"')
        ),
    ),
}


@pytest.mark.parametrize(("group", "moves"), STEPS.values(), ids=STEPS)
def test_one_step(group: MultiKueueGroup, moves: MultiKueueActions) -> None:
    assert next_multikueue_actions(group, NOW, LOST_AFTER) == moves


def test_each_round_adds_a_few_clusters_and_keeps_the_others() -> None:
    remotes = ("e", "d", "c", "b", "a")
    first = nominate_incrementally((), remotes, started=None, now=NOW, step_size=2)
    assert first == ClusterNomination(clusters=("e", "d"), started=NOW, next_round=NOW + ROUND_DURATION + 1)
    waiting = nominate_incrementally(first.clusters, remotes, started=NOW, now=NOW + ROUND_DURATION, step_size=2)
    assert waiting == first
    later = NOW + ROUND_DURATION + 1
    second = nominate_incrementally(first.clusters, remotes, started=NOW, now=later, step_size=2, config_order=False)
    assert second.clusters == ("e", "d", "a", "b")
    last = nominate_incrementally(("e", "d", "c"), remotes, started=NOW, now=later, step_size=3)
    assert last == ClusterNomination(clusters=(*remotes[:3], "b", "a"), started=later, next_round=None)
    assert nominate_incrementally(remotes, remotes, started=NOW, now=later, step_size=2).exhausted
    assert nominate_all(remotes) == ClusterNomination(clusters=remotes)


def test_only_a_pending_check_of_a_workload_that_runs_nowhere_is_offered() -> None:
    assert skips_nomination(WAITS, None)
    assert skips_nomination(WAITS, READY)
    assert skips_nomination(RUNS, CHECK)
    assert not skips_nomination(RUNS, CHECK, elastic=True)
    assert not skips_nomination(WAITS, CHECK)
