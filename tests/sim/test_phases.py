"""The phases that a workload of the simulator goes through, from its submission to its end."""

from gpuconsole.insight.index.pods import phase_of
from gpuconsole.model.clock import MINUTE, SECOND, Span
from gpuconsole.model.commands import Submit
from gpuconsole.model.queues import ResourceFlavor
from gpuconsole.sim.engine import Simulation
from tests.support.sim_cluster import A100, START, at, job, key_of, nodes, queue, start, submit, two_teams, workload


def phases(simulation: Simulation, name: str, until: Span) -> list[str]:
    """The phases of a workload, looked at each second; each once in a row."""
    found: list[str] = []
    while simulation.now < START + until:
        snapshot = simulation.snapshot()
        word = phase_of(snapshot, snapshot.workloads[key_of(simulation, name)])
        if found[-1:] != [word]:
            found.append(word)
        simulation.advance(simulation.now + SECOND)
    return found


def test_a_victim_is_evicted_until_its_pods_are_gone_and_pending_again_until_there_is_room() -> None:
    simulation = start(two_teams())
    submit(simulation, job("lent", "blue", gpus=4, pods=2, duration=2 * MINUTE))
    at(simulation, (MINUTE, Submit((job("own", "red", gpus=4, duration=MINUTE),))))
    assert phases(simulation, "blue/lent", 6 * MINUTE) == ["running", "evicted", "pending", "running", "finished"]


def test_quota_without_nodes_is_admitted_and_not_running() -> None:
    """Quota for 8 GPUs, and a node of 4: the second job runs when the first has ended."""
    simulation = start([ResourceFlavor(name="a100", node_labels=A100), *nodes(1), *queue("red", 8)])
    submit(simulation, job("first", gpus=4, duration=MINUTE), job("second", gpus=4, duration=MINUTE))
    assert phases(simulation, "red/second", 3 * MINUTE) == ["admitted", "running", "finished"]


def test_a_workload_that_no_job_owns_runs_by_its_own_pods() -> None:
    simulation = start([ResourceFlavor(name="a100", node_labels=A100), *nodes(1), *queue("red", 8)])
    submit(simulation, workload("bare", gpus=2, pods=2, duration="1m"), workload("late", gpus=4, duration="1m"))
    assert phases(simulation, "red/late", 3 * MINUTE) == ["admitted", "running", "finished"]
