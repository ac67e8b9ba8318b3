"""What probably comes for a workload: a start while it waits, a danger while it runs, else nothing."""

from gpuconsole.insight.ahead import Ahead, ahead, looking
from gpuconsole.insight.risk import risk
from gpuconsole.insight.standing import standing_on
from gpuconsole.model.clock import DAY, HOUR
from gpuconsole.sim.engine import Simulation
from gpuconsole.sim.policy import SimPolicy
from tests.cli.test_standing import LENT
from tests.insight.test_eta import after
from tests.insight.test_risk import returning
from tests.insight.world import world


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


def test_of_a_cluster_that_others_run_it_says_what_the_risk_of_all_says() -> None:
    """Our first cycle evicts the guest, which runs there; the owner, which we admit then, waits there."""
    snapshot = world(LENT)
    simulation = Simulation.from_snapshot(snapshot, policy=SimPolicy(), seed=0)
    *_, guest = looking(simulation, "borrower/guest", runs=2, found=snapshot)
    whole = risk(simulation, runs=2, found=standing_on(snapshot, SimPolicy()))
    assert [guest.danger] == list(whole.dangers)
    assert guest.danger is not None
    assert (guest.danger.probability, guest.runs) == (1.0, 2)
    *_, owner = looking(simulation, "lender/owner", runs=2, found=snapshot)
    assert owner.danger is None


def test_nothing_comes_for_what_has_ended_or_is_not_there() -> None:
    simulation = after(1, "1h")
    nothing = Ahead(time=simulation.now, until=simulation.now, runs=0)
    assert ahead(simulation, "a/past-0") == ahead(simulation, "a/nobody") == nothing
