"""The default fixture: within the first minutes it shows all that the console is there to show."""

from collections import Counter
from pathlib import Path

import pytest

from gpuconsole.model.clock import MINUTE
from gpuconsole.model.events import HistoryEvent, HistoryEventKind
from gpuconsole.model.manifests import load
from gpuconsole.model.resources import gpus
from gpuconsole.sim.engine import Simulation
from gpuconsole.sim.scenario import build_simulation, load_scenario

FIXTURE = Path(__file__).resolve().parents[2] / "fixtures" / "scenarios" / "default.yaml"


@pytest.fixture(scope="module")
def simulation() -> Simulation:
    loaded = load([FIXTURE])
    assert loaded.findings == ()
    return build_simulation(load_scenario(loaded.scenario, FIXTURE.name, folder=FIXTURE.parent))


@pytest.fixture(scope="module")
def lines(simulation: Simulation) -> list[HistoryEvent]:
    """The first ten minutes: ten seconds at ×60."""
    twin = simulation.fork()
    twin.drain()
    twin.advance(twin.now + 10 * MINUTE)
    return [event for event in twin.drain() if isinstance(event, HistoryEvent)]


def test_it_has_24_nodes_of_three_kinds_and_five_teams_in_two_cohorts(simulation: Simulation) -> None:
    snapshot = simulation.snapshot()
    kinds = Counter(node.labels["accelerator"] for node in snapshot.nodes.all())
    assert kinds == {"h100-80gb": 8, "a100-80gb": 10, "l4": 6}
    assert {node.gpus for node in snapshot.nodes.all()} == {8}
    assert Counter(queue.cohort for queue in snapshot.cluster_queues.all()) == {"research": 2, "product": 3}
    assert len(snapshot.local_queues) == 5


def test_the_quotas_add_up_to_what_the_nodes_have(simulation: Simulation) -> None:
    snapshot = simulation.snapshot()
    nominal = sum(
        gpus({resource: quota.nominal})
        for queue in snapshot.cluster_queues.all()
        for (_, resource), quota in queue.quotas().items()
    )
    assert nominal == sum(node.gpus for node in snapshot.nodes.all()) == 192


def test_it_is_warm_when_it_opens(simulation: Simulation) -> None:
    snapshot = simulation.snapshot()
    assert sum(len(pod.gpus) for pod in snapshot.pods.all()) > 130
    assert {job.kind for job in snapshot.jobs.all()} >= {"Job", "JobSet", "RayJob", "PyTorchJob"}


def test_within_ten_seconds_at_60_everything_has_happened(lines: list[HistoryEvent]) -> None:
    told = Counter(line.what for line in lines)
    assert told[HistoryEventKind.SUBMITTED] >= 5
    assert told[HistoryEventKind.FINISHED] >= 5
    assert told[HistoryEventKind.STARTED] >= 5
    assert told[HistoryEventKind.GANG_WAITING] >= 1
    assert sum(line.borrowed > 0 for line in lines) >= 1
    assert {line.reason for line in lines if line.what is HistoryEventKind.PREEMPTED} == {
        "InClusterQueue",
        "InCohortReclamation",
    }
    assert told[HistoryEventKind.COMMAND_REFUSED] == 0


def test_the_waiting_have_reasons_of_several_kinds(lines: list[HistoryEvent]) -> None:
    assert len({line.reason for line in lines if line.what is HistoryEventKind.PENDING}) >= 3
