"""Random lives of a small cluster: commands at random moments, for the laws that hold whatever happens."""

from collections.abc import Callable

from hypothesis import strategies as st

from gpuconsole.model.clock import MINUTE, SECOND, Span
from gpuconsole.model.commands import (
    AddNodes,
    Command,
    Cordon,
    Delete,
    Drain,
    FailNode,
    FailPod,
    Finish,
    MoveToQueue,
    Reconfigure,
    Requeue,
    RestoreNode,
    SetActive,
    SetCohort,
    SetPreemption,
    SetPriority,
    SetQuota,
    SetStopPolicy,
    SetTaint,
    SetWeight,
    Submit,
)
from gpuconsole.model.objects import Object
from gpuconsole.model.queues import LocalQueue, PreemptionPolicy, StopPolicy
from gpuconsole.model.snapshot import Snapshot
from gpuconsole.sim.engine import Simulation
from tests.support.sim_cluster import GPU, job, pod, two_teams, workload

Deed = Callable[[Simulation], None]

TEAMS = st.sampled_from(["red", "blue"])
NODES = st.sampled_from(["n1", "n2", "n3"])
SPANS = st.sampled_from([0, 1, SECOND // 3, SECOND, 17 * SECOND, MINUTE, 7 * MINUTE])
NAMES = st.sampled_from(["a", "b", "c", "d", "e", "f"])


def cluster() -> list[Object]:
    return [*two_teams(12), LocalQueue(namespace="red", name="guest", cluster_queue="blue")]


JOBS = st.builds(
    job,
    NAMES,
    TEAMS,
    gpus=st.integers(1, 4),
    pods=st.integers(1, 3),
    duration=st.sampled_from([MINUTE, 5 * MINUTE, 20 * MINUTE]),
    checkpoint=st.sampled_from([None, MINUTE, 4 * MINUTE]),
    priority_class=st.sampled_from(["", "low", "high"]),
    grace=st.sampled_from([0, 10 * SECOND, 30 * SECOND]),
    kind=st.sampled_from(["Job", "PyTorchJob"]),
    queue=st.sampled_from(["lq", "lq", "guest", ""]),
    backoff_limit=st.integers(0, 2),
    max_time=st.sampled_from([None, None, 3 * MINUTE]),
)
WORKLOADS = st.builds(workload, NAMES, TEAMS, gpus=st.integers(1, 3), pods=st.integers(1, 2), duration=st.just("6m"))
PODS = st.builds(pod, NAMES, gpus=st.integers(1, 2), priority=st.integers(0, 2), duration=st.sampled_from(["", "3m"]))
CREATED = st.one_of(JOBS, JOBS, JOBS, WORKLOADS, PODS).map(lambda thing: Submit((thing,)))

CLUSTER_COMMANDS = st.one_of(
    st.builds(Cordon, NODES, st.booleans()),
    st.builds(Drain, NODES),
    st.builds(FailNode, NODES),
    st.builds(RestoreNode, NODES),
    st.builds(SetStopPolicy, st.sampled_from(["red", "blue", "red/lq"]), st.sampled_from(list(StopPolicy))),
    st.builds(SetQuota, TEAMS, st.just("a100"), st.just(GPU), st.integers(0, 6)),
    st.builds(SetWeight, TEAMS, st.sampled_from([0.0, 1.0, 3.0])),
    st.builds(SetCohort, TEAMS, st.sampled_from(["", "both", "other"])),
    st.builds(SetPreemption, TEAMS, st.sampled_from(list(PreemptionPolicy)), st.sampled_from(list(PreemptionPolicy))),
    st.builds(SetTaint, NODES, st.just("spare"), effect=st.sampled_from(["NoSchedule", "NoExecute"])),
    st.builds(SetTaint, NODES, st.just("spare"), removed=st.just(True)),
    st.builds(AddNodes, NODES),
    st.builds(Reconfigure, fair_sharing=st.booleans(), placement=st.sampled_from([{}, {"score": "spread"}])),
)


def _chosen(table: str, make: Callable[[str], Command]) -> Callable[[int], Deed]:
    """A command about the n-th object that is there when it is given."""

    def deed(number: int) -> Deed:
        def carry_out(simulation: Simulation) -> None:
            keys = list(getattr(simulation.snapshot(), table))
            if keys:
                simulation.submit(make(keys[number % len(keys)]))

        return carry_out

    return deed


def _about_workloads(make: Callable[[str], Command]) -> st.SearchStrategy[Deed]:
    return st.integers(0, 9).map(_chosen("workloads", make))


UNFORCED: st.SearchStrategy[Deed] = st.one_of(
    CREATED.map(lambda command: lambda simulation: simulation.submit(command)),
    CREATED.map(lambda command: lambda simulation: simulation.submit(command)),
    CLUSTER_COMMANDS.map(lambda command: lambda simulation: simulation.submit(command)),
    _about_workloads(Requeue),
    _about_workloads(lambda key: SetActive(key, False)),
    _about_workloads(lambda key: SetActive(key, True)),
    _about_workloads(lambda key: SetPriority(key, 700)),
    _about_workloads(lambda key: MoveToQueue(key, "guest")),
    _about_workloads(lambda key: Delete("workloads", key)),
    st.integers(0, 9).map(_chosen("pods", FailPod)),
    st.integers(0, 9).map(_chosen("pods", lambda key: Delete("pods", key))),
    st.integers(0, 9).map(_chosen("jobs", lambda key: Delete("jobs", key))),
)
DEEDS = st.one_of(UNFORCED, UNFORCED, UNFORCED, _about_workloads(Finish))
LIVES: st.SearchStrategy[list[tuple[Span, Deed]]] = st.lists(st.tuples(SPANS, DEEDS), min_size=1, max_size=14)
UNFORCED_LIVES = st.lists(st.tuples(SPANS, UNFORCED), min_size=1, max_size=14)
"""Lives in which nobody ends work by order."""


def live(simulation: Simulation, deeds: list[tuple[Span, Deed]]) -> None:
    """Let time pass and do each deed."""
    for span, deed in deeds:
        simulation.advance(simulation.now + span)
        deed(simulation)


def contents(snapshot: Snapshot) -> dict[str, object]:
    """Everything in a snapshot, comparable."""
    return {"time": snapshot.time, "recent": snapshot.recent, "objects": list(snapshot.objects())}
