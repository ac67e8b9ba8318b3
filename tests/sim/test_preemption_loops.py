"""Preemption loops: what real latencies break up, and fixed steps keep going for ever.

A head that searches two flavors in turn meets the victim that it evicted in one of two places of its search. With steps
of exactly a second it is always the same place, in which the victim gets its quota back; Kueue itself is done after a
few rounds (1 to 8, mean 3.4, in eight runs on a real control plane).
"""

from collections import Counter
from pathlib import Path

import pytest

from gpuconsole.insight.unblock.search import placement_suggestion_steps
from gpuconsole.model.clock import HOUR, SECOND
from gpuconsole.model.commands import Submit
from gpuconsole.model.events import HistoryEvent, HistoryEventKind
from gpuconsole.model.manifests import load
from gpuconsole.model.manifests.loading import load_text
from gpuconsole.sim.engine import Simulation
from gpuconsole.sim.scenario import build_simulation, load_scenario
from tests.support.random_placement import random_places, waiting

FIXTURE = Path(__file__).resolve().parents[2] / "fixtures" / "scenarios" / "default.yaml"
PRODUCTION_JOB = """
apiVersion: batch/v1
kind: Job
metadata:
  name: serve-extra
  namespace: llm
  labels: {kueue.x-k8s.io/queue-name: main, kueue.x-k8s.io/priority-class: production}
  annotations: {gpuconsole.io/duration: 24h}
spec:
  template:
    spec:
      restartPolicy: Never
      containers: [{name: main, image: example.com/work:1, resources: {limits: {nvidia.com/gpu: "8"}}}]
"""
RUNS = 50


def with_a_production_job() -> Simulation:
    """The default fixture with one production job, 17 seconds after its start."""
    simulation = build_simulation(load_scenario(load([FIXTURE]).scenario, FIXTURE.name, folder=FIXTURE.parent))
    simulation.advance(simulation.now + 17 * SECOND)
    simulation.submit(Submit(load_text(PRODUCTION_JOB).objects))
    simulation.drain()
    return simulation


def most_evicted(simulation: Simulation) -> int:
    """How often the workload that is evicted most often is evicted within an hour."""
    simulation.advance(simulation.now + HOUR)
    lines = (event for event in simulation.drain() if isinstance(event, HistoryEvent))
    return max(Counter(line.workload for line in lines if line.what is HistoryEventKind.EVICTED).values())


@pytest.mark.usefixtures("measured_latencies")
def test_no_workload_of_the_default_fixture_is_evicted_more_than_ten_times_whatever_the_latencies() -> None:
    simulation = with_a_production_job()
    found = [most_evicted(simulation.fork_with_latency_run(run)) for run in range(RUNS)]
    assert (max(found) <= 10, len(set(found)) > 1) == (True, True), found


def test_with_fixed_steps_the_same_workload_is_evicted_again_and_again() -> None:
    """What the test above is about: were it not so, it would prove nothing."""
    assert most_evicted(with_a_production_job()) > 10


@pytest.mark.usefixtures("measured_latencies")
@pytest.mark.parametrize("seed", [35, 36, 37, 38])
def test_a_scheduler_that_evicts_what_it_has_just_bound_does_not_stop_the_clock(seed: int) -> None:
    """KAI's consolidation moves pods whose containers have not started yet."""
    simulation = random_places(seed)
    for key in waiting(simulation):
        *_, last = placement_suggestion_steps(simulation, key)
        assert last.answer is not None
