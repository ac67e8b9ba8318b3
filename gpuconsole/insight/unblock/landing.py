"""Whether the pods of a workload find nodes once a change has let it in: admission alone does not look at nodes.

The change is made in a fork of the simulation, which goes on a minute, as for pods that wait for nodes (`placing`).
"""

from collections.abc import Callable, Iterator, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from gpuconsole.insight.pending_pods import explain_pods
from gpuconsole.insight.unblock.making import around, changed
from gpuconsole.insight.unblock.placing import HORIZON
from gpuconsole.insight.unblock.steps import (
    AddNodes,
    AdmitNamespace,
    End,
    LoosenBudget,
    RaiseLimit,
    Resume,
    Step,
    Steps,
)
from gpuconsole.model import commands
from gpuconsole.model.objects import Object
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
    UNSEEN = "unseen"
    """It has no pods within that minute: others leave more slowly, checks are open, or it runs elsewhere."""
    UNTRIED = "untried"
    """No simulation, or no node, is known."""


class Landing(Struct, frozen=True):
    """What was seen, and in words what the pods lack."""

    nodes: Nodes
    text: str = ""


UNTRIED = Landing(Nodes.UNTRIED)
Land = Callable[[Steps], Landing]


def untried(_: Steps) -> Landing:
    """Where nobody can tell."""
    return UNTRIED


def landing(simulating: "Callable[[], Simulation] | None", key: str) -> Land:
    """How changes that let the workload `key` in are tried; the simulation is asked for when the first one is."""
    base: list[Simulation] = []

    def land(steps: Steps) -> Landing:
        if simulating is None:
            return untried(steps)
        if not base:
            base.append(simulating().fork())
            base[0].drain()
        return _landed(base[0].fork(), key, steps)

    return land


def _landed(fork: "Simulation", key: str, steps: Steps) -> Landing:
    before = fork.snapshot()
    workload = before.workloads.get(key)
    if not len(before.nodes) or workload is None:
        return UNTRIED
    # All at once: nobody else gets in between one of them and the next.
    fork.schedule(fork.now, *_orders(before, workload, steps))
    fork.advance(fork.now + HORIZON)
    return _seen(fork.snapshot(), key)


def _orders(before: Snapshot, workload: Workload, steps: Sequence[Step]) -> Iterator[commands.Command]:
    """The changes as commands; a workload that is asked for otherwise keeps its name, its age and so its place."""
    new = workload
    for step in steps:
        match step:
            case End(other):
                yield commands.Finish(other)
            case AddNodes():
                yield commands.AddNodes(step.like, step.count)
            case Resume(kind="Workload"):
                yield commands.SetActive(workload.key, True)
            case RaiseLimit() | AdmitNamespace() | Resume():
                yield commands.Submit(around(before, step))
            case LoosenBudget():
                pass  # Kueue asks no budget.
            case _:
                new = changed(new, step)
    if new is not workload:
        alone: Object = replace(new, owner="", parked=False, conditions=())
        yield commands.Delete("workloads", workload.key)
        yield commands.Submit((alone,))


def _seen(later: Snapshot, key: str) -> Landing:
    workload = later.workloads.get(key)
    if workload is not None and workload.finished:
        return Landing(Nodes.FOUND)
    pods = [pod for pod in later.pods.all() if pod.workload == key and not pod.deleted]
    if workload is None or not workload.admitted or not pods:
        return Landing(Nodes.UNSEEN)
    told = explain_pods(later, key, pods)
    if told is None:
        return Landing(Nodes.FOUND)
    short = sum(not pod.node and not pod.done for pod in pods)
    why = f": {told.lines[0]}" if told.lines else ""
    return Landing(Nodes.NONE, f"{short} of {len(pods)} pods have no node{why}")
