"""Whether the pods of a workload find nodes once a change has let it in: admission alone does not look at nodes.

The change is made in a fork of the simulation, which goes on a minute, as for pods that wait for nodes (`placing`).
"""

from collections.abc import Callable, Generator
from enum import StrEnum
from typing import TYPE_CHECKING

from msgspec import Struct

from gpuconsole.insight.checking import open_checks
from gpuconsole.insight.pending_pods import explain_pods
from gpuconsole.insight.unblock.orders import orders
from gpuconsole.insight.unblock.placing import HORIZON
from gpuconsole.insight.unblock.steps import Steps
from gpuconsole.model.clock import Time, format_seconds
from gpuconsole.model.events import Happened, What
from gpuconsole.model.snapshot import Snapshot
from gpuconsole.model.workloads import Workload

if TYPE_CHECKING:
    from gpuconsole.sim.engine import Simulation


class Nodes(StrEnum):
    """What becomes of the pods of a workload that a change lets in."""

    FOUND = "found"
    """All of them have a node, or had one and are done."""
    NONE = "none"
    """It is admitted, and some of its pods have no node."""
    EVICTED = "evicted"
    """It is admitted, and loses its place again within that minute."""
    CHECKS = "checks"
    """It gets its quota, and its admission checks, or its place in a topology, are still open."""
    UNSEEN = "unseen"
    """It has no pods within that minute: others leave more slowly, or it runs elsewhere."""
    UNTRIED = "untried"
    """No simulation, or no node, is known."""


class Landing(Struct, frozen=True):
    """What was seen, and in words what the pods lack, or what is open."""

    nodes: Nodes
    text: str = ""


UNTRIED = Landing(Nodes.UNTRIED)
Trying = Generator[None, None, Landing]
"""Comes piece by piece: who stops asking gives up."""
Land = Callable[[Steps], Trying]


def untried(_: Steps) -> Trying:
    """Where nobody can tell."""
    yield from ()
    return UNTRIED


def landing(simulating: "Callable[[], Simulation] | None", key: str) -> Land:
    """How changes that let the workload `key` in are tried; the simulation is asked for when the first one is."""
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
    # All at once: nobody else gets in between one of them and the next.
    fork.schedule(fork.now, *orders(before, key, steps))
    end = fork.now + HORIZON
    while (due := fork.next_time) is not None and due <= end:
        fork.advance(due)
        yield
    fork.advance(end)
    return _evicted(fork, key, before.time) or _seen(fork.snapshot(), key)


def _evicted(fork: "Simulation", key: str, start: Time) -> Landing | None:
    """That it was let in and has lost its place again by now; None where that is not so."""
    now = fork.workload(key)
    lost = [e for e in fork.drain() if isinstance(e, Happened) and e.what is What.EVICTED and e.workload == key]
    if not lost or (now is not None and now.reserved and not now.is_true("Evicted")):
        return None
    by = f" for {lost[-1].by}" if lost[-1].by else ""
    return Landing(Nodes.EVICTED, f"evicted again at +{format_seconds(lost[-1].time - start)}{by}")


def _seen(later: Snapshot, key: str) -> Landing:
    workload = later.workloads.get(key)
    if workload is not None and workload.finished:
        return Landing(Nodes.FOUND)
    if workload is not None and workload.reserved and not workload.admitted:
        return Landing(Nodes.CHECKS, _open(workload))
    pods = [pod for pod in later.pods.all() if pod.workload == key and not pod.deleted]
    if workload is None or not workload.admitted or not pods:
        return Landing(Nodes.UNSEEN)
    told = explain_pods(later, key, pods)
    if told is None:
        return Landing(Nodes.FOUND)
    short = sum(not pod.node and not pod.done for pod in pods)
    why = f": {told.lines[0]}" if told.lines else ""
    return Landing(Nodes.NONE, f"{short} of {len(pods)} pods have no node{why}")


def _open(workload: Workload) -> str:
    """What it waits for with quota in hand."""
    names = [f"{check.name} is {check.state}" for check in open_checks(workload)]
    return ", ".join(names) or "its place in the topology is open"
