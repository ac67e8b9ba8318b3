"""Tests whether a workload's pods are ready, and computes their timeout (waitForPodsReady).

Kueue 0.19 jobframework generatePodsReadyCondition; workload controller admittedNotReadyWorkload.
"""

from enum import StrEnum

from gpuconsole.model.clock import Span, Time
from gpuconsole.model.workloads import Condition, Workload
from gpuconsole.scheduling.kueue.conditions import ADMITTED
from gpuconsole.scheduling.kueue.config import WaitForPodsReady

PODS_READY = "PodsReady"


class Wait(StrEnum):
    """The kind of readiness an admitted workload waits for; the cause of its eviction after the timeout."""

    START = "WaitForStart"
    RECOVERY = "WaitForRecovery"


_TEXTS = {
    Wait.START: "Not all pods are ready or succeeded",
    Wait.RECOVERY: "At least one pod has failed, waiting for recovery",
}
_STARTED, _RECOVERED = "Started", "Recovered"
_READY = "All pods reached readiness and the workload is running"


def with_readiness(workload: Workload, ready: bool, now: Time) -> Workload:
    """Set the PodsReady condition; the same object if nothing changes."""
    said = workload.condition(PODS_READY)
    if not workload.admitted:
        return _with(workload, Condition(PODS_READY, False, Wait.START, _TEXTS[Wait.START], now))
    if ready:
        again = said is not None and said.reason in (Wait.RECOVERY, _RECOVERED)
        return _with(workload, Condition(PODS_READY, True, _RECOVERED if again else _STARTED, _READY, now))
    lost = said is not None and (said.status or said.reason == Wait.RECOVERY)
    wait = Wait.RECOVERY if lost else Wait.START
    return _with(workload, Condition(PODS_READY, False, wait, _TEXTS[wait], now))


def _with(workload: Workload, condition: Condition) -> Workload:
    said = workload.condition(PODS_READY)
    if said is not None and (said.status, said.reason) == (condition.status, condition.reason):
        return workload
    return workload.with_condition(condition)


def pods_ready_timeout(workload: Workload, settings: WaitForPodsReady | None, now: Time) -> tuple[Wait, Span] | None:
    """Return the kind of wait and the time left (0: timed out); None without a timeout."""
    admitted = workload.condition(ADMITTED)
    if settings is None or admitted is None or not admitted.status:
        return None
    said = workload.condition(PODS_READY)
    if said is not None and said.status:
        return None
    if said is None or said.reason in (Wait.START, PODS_READY):
        return Wait.START, max(0, admitted.since + settings.timeout - now)
    if said.reason == Wait.RECOVERY and settings.recovery:
        return Wait.RECOVERY, max(0, said.since + settings.recovery - now)
    return None
