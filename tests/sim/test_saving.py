"""A simulation as bytes: what it reads back takes no more room than what was written."""

from gpuconsole.sim.engine import Simulation
from tests.sim.cluster import job, start, submit, two_teams


def test_workloads_that_ask_for_the_same_hold_the_same_when_they_are_loaded() -> None:
    simulation = start(two_teams())
    submit(simulation, job("one", gpus=4), job("two", gpus=4))
    loaded = Simulation.load(simulation.save()).snapshot()
    one, two = loaded.workloads.all()
    assert [one, two] == list(simulation.snapshot().workloads.all())
    assert one.pod_sets[0] is two.pod_sets[0]
