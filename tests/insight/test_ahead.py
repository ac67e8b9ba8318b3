"""What probably comes for a workload: a start while it waits, a danger while it runs, else nothing."""

from gpuconsole.insight.ahead import Ahead, ahead
from gpuconsole.model.clock import DAY, HOUR
from tests.insight.test_eta import after
from tests.insight.test_risk import returning


def test_a_waiting_workload_gets_its_start_for_a_day_ahead() -> None:
    simulation = after(30, "1h")
    found = ahead(simulation, "a/next", runs=2)
    assert (found.danger, found.runs, found.until) == (None, 2, simulation.now + DAY)
    assert found.eta is not None
    assert found.eta.start is not None


def test_a_running_workload_gets_its_danger_for_six_hours_ahead() -> None:
    simulation = returning()
    found = ahead(simulation, "borrower/large", runs=2)
    assert (found.eta, found.until) == (None, simulation.now + 6 * HOUR)
    assert found.danger is not None
    assert found.danger.workload == "borrower/large"


def test_nothing_comes_for_what_has_ended_or_is_not_there() -> None:
    simulation = after(1, "1h")
    nothing = Ahead(time=simulation.now, until=simulation.now, runs=0)
    assert ahead(simulation, "a/past-0") == ahead(simulation, "a/nobody") == nothing
