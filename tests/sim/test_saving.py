"""A simulation as bytes: what it reads back takes no more room than what was written."""

from gpuconsole.model.clock import HOUR
from gpuconsole.model.snapshot import Visibility
from gpuconsole.model.state import ClusterState
from gpuconsole.sim.engine import Simulation
from gpuconsole.sim.policy import SimPolicy
from tests.support.sim_cluster import job, start, submit, two_teams


def test_workloads_that_ask_for_the_same_hold_the_same_when_they_are_loaded() -> None:
    simulation = start(two_teams())
    submit(simulation, job("one", gpus=4), job("two", gpus=4))
    loaded = Simulation.load(simulation.save()).snapshot()
    one, two = loaded.workloads.all()
    assert [one, two] == list(simulation.snapshot().workloads.all())
    assert one.pod_sets[0] is two.pod_sets[0]


def test_what_was_not_seen_of_its_cluster_is_known_later_in_forks_and_when_it_is_loaded() -> None:
    state = ClusterState(0)
    state.seen = Visibility(assumed=("Kueue's Configuration is assumed to be the default",))
    simulation = Simulation.from_snapshot(state.freeze(), policy=SimPolicy(), seed=0)
    simulation.advance(HOUR)
    copies = (simulation, simulation.fork(), Simulation.load(simulation.save()))
    assert [one.snapshot().seen for one in copies] == [state.seen] * 3
