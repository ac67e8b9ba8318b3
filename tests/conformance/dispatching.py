"""controller_workloaddispatcher: to which worker clusters a workload is offered, round by round."""

from collections.abc import Iterator

from msgspec.structs import replace

from gpuconsole.model.clock import SECOND
from gpuconsole.model.workloads import CheckState
from gpuconsole.scheduling.kueue.admission_checks import ROUND_DURATION, nominate_incrementally, skips_nomination
from gpuconsole.scheduling.kueue.config import MultiKueueSettings
from tests.conformance import world
from tests.conformance.tables import Case, Check, NotModelled, Table, compare

STEP = MultiKueueSettings().step_size
CONFIGURED_STEP = "MultiKueueIncrementalDispatcherConfig"
CONFIGURED_ORDER = "MultiKueueIncrementalDispatcherRespectConfigOrder"


def check_nomination(table: Table, case: Case) -> Iterator[str]:
    """TestIncrementalDispatcherNominateWorkers: the clusters of the next round."""
    workload = world.decode_workload(case.input["workload"])
    now = world.clock(table.fixtures["fakeClock"])
    started = now if workload.nominated_clusters else None
    if case.input.get("advanceRoundTime"):
        now += ROUND_DURATION + SECOND
    configured = case.input.get("cfg") or {}
    got = nominate_incrementally(
        workload.nominated_clusters,
        case.input.get("remoteClusters") or (),
        started=started,
        now=now,
        step_size=configured.get("stepSize", STEP) if case.gates.get(CONFIGURED_STEP, True) else STEP,
        config_order=case.gates.get(CONFIGURED_ORDER, True),
    )
    yield from compare("wantNominatedClusters", list(got.clusters), case.want.get("wantNominatedClusters") or [])
    yield from compare("wantErr", got.exhausted, bool(case.want.get("wantErr")))


def check_step(table: Table, case: Case) -> Iterator[str]:
    """TestIncrementalDispatcherReconciler_Reconcile: does a step fail?"""
    document = case.input.get("workload")
    if document is None:
        raise NotModelled("a step for a workload that does not exist")
    state = case.input.get("mkAcState")
    check = CheckState(name=state["name"], state=state["state"]) if state else None
    workload = world.decode_workload(document)
    workload = replace(workload, checks=(check,) if check is not None else ())
    exhausted = False
    if not skips_nomination(workload, check) and workload.reserved:
        now = world.clock(table.fixtures["fakeClock"])
        exhausted = nominate_incrementally(
            (), case.input.get("remoteClusters") or (), started=None, now=now, step_size=STEP
        ).exhausted
    yield from compare("wantErr", exhausted, bool(case.want.get("wantErr")))


CHECKS: dict[str, Check] = {
    "controller_workloaddispatcher/TestIncrementalDispatcherNominateWorkers": lambda t, c: list(check_nomination(t, c)),
    "controller_workloaddispatcher/TestIncrementalDispatcherReconciler_Reconcile": lambda t, c: list(check_step(t, c)),
}
