"""Trial whether a workload's pods are scheduled once a change admits it, as admission does not check nodes.

The change is made in a fork of the simulation, which runs for one minute, as in `placement_trial`.
"""

from collections.abc import Callable, Generator
from enum import StrEnum
from typing import TYPE_CHECKING

from msgspec import Struct

from gpuconsole.insight.checking import open_checks
from gpuconsole.insight.pending_pods import explain_pods
from gpuconsole.insight.unblock.change_commands import change_commands
from gpuconsole.insight.unblock.placement_trial import HORIZON
from gpuconsole.insight.unblock.steps import Steps
from gpuconsole.model.clock import Time, format_seconds
from gpuconsole.model.events import HistoryEvent, HistoryEventKind
from gpuconsole.model.snapshot import Snapshot
from gpuconsole.model.workloads import Workload

if TYPE_CHECKING:
    from gpuconsole.sim.engine import Simulation


class PlacementStatus(StrEnum):
    """Outcome for the pods of a workload that a change admits."""

    FOUND = "found"
    """All pods are scheduled, or have ended."""
    NONE = "none"
    """It is admitted, but some of its pods are not scheduled."""
    EVICTED = "evicted"
    """It is admitted, and evicted again within that minute."""
    CHECKS = "checks"
    """It has reserved quota, but its admission checks or its topology assignment are pending."""
    UNSEEN = "unseen"
    """It has no pods within that minute: victims terminate more slowly, or it runs in another cluster."""
    UNTRIED = "untried"
    """No trial is possible: there is no simulation, or no node is known."""


class PlacementResult(Struct, frozen=True):
    """The outcome, with a text of what the pods lack or what is pending."""

    nodes: PlacementStatus
    text: str = ""


UNTRIED = PlacementResult(PlacementStatus.UNTRIED)
Trying = Generator[None, None, PlacementResult]
"""Runs in steps: closing it ends the trial."""
CheckPlacement = Callable[[Steps], Trying]


def untried(_: Steps) -> Trying:
    """Return the outcome `untried`, where no trial is possible."""
    yield from ()
    return UNTRIED


def placement_check(simulating: "Callable[[], Simulation] | None", key: str) -> CheckPlacement:
    """Return a function that tries changes that admit the workload `key`; the simulation is made at its first call."""
    base: list[Simulation] = []

    def land(steps: Steps) -> Trying:
        if simulating is None:
            return (yield from untried(steps))
        if not base:
            base.append(simulating().ahead((key,)))
            base[0].drain()
        return (yield from _landed(base[0].fork(), key, steps))

    return land


def _landed(fork: "Simulation", key: str, steps: Steps) -> Trying:
    before = fork.snapshot()
    workload = before.workloads.get(key)
    if not len(before.nodes) or workload is None:
        return UNTRIED
    # All changes at once, so that no other workload is admitted between them.
    fork.schedule(fork.now, *change_commands(before, key, steps))
    end = fork.now + HORIZON
    while (due := fork.next_time) is not None and due <= end:
        fork.advance(due)
        yield
    fork.advance(end)
    return _evicted(fork, key, before.time) or _seen(fork.snapshot(), key)


def _evicted(fork: "Simulation", key: str, start: Time) -> PlacementResult | None:
    """Return the outcome of a workload that was evicted again; None if it was not."""
    now = fork.workload(key)
    lost = [
        e
        for e in fork.drain()
        if isinstance(e, HistoryEvent) and e.what is HistoryEventKind.EVICTED and e.workload == key
    ]
    if not lost or (now is not None and now.reserved and not now.is_true("Evicted")):
        return None
    by = f" by {lost[-1].by}" if lost[-1].by else ""
    return PlacementResult(PlacementStatus.EVICTED, f"evicted again at +{format_seconds(lost[-1].time - start)}{by}")


def _seen(later: Snapshot, key: str) -> PlacementResult:
    workload = later.workloads.get(key)
    if workload is not None and workload.finished:
        return PlacementResult(PlacementStatus.FOUND)
    if workload is not None and workload.reserved and not workload.admitted:
        return PlacementResult(PlacementStatus.CHECKS, _open(workload))
    pods = [pod for pod in later.pods.all() if pod.workload == key and not pod.deleted]
    if workload is None or not workload.admitted or not pods:
        return PlacementResult(PlacementStatus.UNSEEN)
    explanation = explain_pods(later, key, pods)
    if explanation is None:
        return PlacementResult(PlacementStatus.FOUND)
    short = sum(not pod.node and not pod.done for pod in pods)
    why = f": {explanation.lines[0]}" if explanation.lines else ""
    return PlacementResult(PlacementStatus.NONE, f"{short} of {len(pods)} pods unschedulable{why}")


def _open(workload: Workload) -> str:
    """Describe what a workload with reserved quota waits for."""
    names = [f"{check.name} is {check.state}" for check in open_checks(workload)]
    return ", ".join(names) or "its topology assignment is pending"
