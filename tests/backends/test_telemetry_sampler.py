"""A simulated cluster measures its GPUs bit by bit, and never in a way that changes what happens."""

from gpuconsole.backends.simulated import NODES, REST, SimulatedBackend, TelemetrySampler
from gpuconsole.model.clock import MINUTE
from gpuconsole.model.cluster import Node
from gpuconsole.model.commands import Delete
from gpuconsole.model.events import Applied, Deleted, Event
from gpuconsole.model.telemetry import NodeTelemetry
from gpuconsole.sim.engine import Simulation
from gpuconsole.sim.policy import SimPolicy

START = 1_760_000_000_000_000


def simulation(*more: NodeTelemetry, nodes: int = 3) -> Simulation:
    gpus = {"nvidia.com/gpu": 8, "cpu": 64_000}
    made = [Node(name=f"n{number}", capacity=gpus, allocatable=gpus) for number in range(nodes)]
    return Simulation.from_objects([*made, *more], policy=SimPolicy(), seed=1, start=START)


def measured(events: list[Event]) -> list[str]:
    return [
        event.object.name for event in events if isinstance(event, Applied) and isinstance(event.object, NodeTelemetry)
    ]


def test_a_poll_measures_a_few_nodes_and_a_round_begins_only_after_a_rest_and_a_period() -> None:
    one, survey = simulation(nodes=NODES + 2), TelemetrySampler()
    assert survey.take(one) == []
    assert len(measured(survey.take(one))) == NODES
    assert len(measured(survey.take(one))) == 2
    one.advance(START + 10 * MINUTE)
    waited = [len(survey.take(one)) for _ in range(REST)]
    assert sum(waited) == NODES + 2
    assert waited[:20] == [0] * 20
    still = [len(survey.take(one)) for _ in range(3 * REST)]
    assert sum(still) == 0, "the time stands"


def test_a_node_that_is_gone_is_measured_no_more() -> None:
    one, survey = simulation(), TelemetrySampler()
    survey.take(one)
    assert measured(survey.take(one)) == ["n0", "n1", "n2"]
    one.submit(Delete("nodes", "n1"))
    one.advance(one.now + MINUTE)
    told = [event for _ in range(3 * REST) for event in survey.take(one)]
    assert [event for event in told if isinstance(event, Deleted)] == [Deleted(one.now, "telemetry", "n1")]
    assert measured(told) == ["n0", "n2"]


def test_what_a_real_source_told_is_not_made_up_anew() -> None:
    real = NodeTelemetry(name="n0", time=START, source="http://prometheus")
    one, survey = simulation(real), TelemetrySampler()
    one.advance(START + 10 * MINUTE)
    assert [event for _ in range(3 * REST) for event in survey.take(one)] == []


def test_a_backend_tells_of_it_only_where_it_was_asked_to_and_its_history_is_the_same() -> None:
    silent, telling = SimulatedBackend(simulation()), SimulatedBackend(simulation(), measure=True)
    for backend in (silent, telling):
        backend.open()
    events = {one: [event for _ in range(60) for event in one.poll(1.0)] for one in (silent, telling)}
    assert measured(events[silent]) == []
    assert set(measured(events[telling])) == {"n0", "n1", "n2"}
    assert silent.digest == telling.digest
