"""What probably comes for a workload: a start while it waits, a danger while it runs, else nothing."""

from gpuconsole.insight.forecast.forecast import WorkloadOutlook, outlook_steps
from gpuconsole.insight.pending.why import view_on
from gpuconsole.insight.preemption.risk import risk
from gpuconsole.model.clock import DAY, HOUR
from gpuconsole.model.cooperative import Progress, complete_answer
from gpuconsole.sim.engine import Simulation
from gpuconsole.sim.policy import SimPolicy
from tests.cli.test_saved_simulations import LENT
from tests.insight.test_eta import after
from tests.insight.test_risk import returning
from tests.support.snapshots import world


def test_a_waiting_workload_gets_its_start_for_a_day_ahead() -> None:
    simulation = after(30, "1h")
    found = complete_answer(outlook_steps(simulation, "a/next", runs=2))
    assert (found.risk, found.runs, found.until) == (None, 2, simulation.now + DAY)
    assert found.eta is not None
    assert found.eta.start is not None


def test_a_running_workload_gets_its_danger_for_six_hours_ahead() -> None:
    simulation = returning()
    found = complete_answer(outlook_steps(simulation, "borrower/large", runs=2))
    assert (found.eta, found.until) == (None, simulation.now + 6 * HOUR)
    assert found.risk is not None
    assert found.risk.workload == "borrower/large"


def test_of_a_cluster_that_others_run_it_says_what_the_risk_of_all_says() -> None:
    """Our first cycle evicts the guest, which runs there; the owner, which we admit then, waits there."""
    snapshot = world(LENT)
    simulation = Simulation.from_snapshot(snapshot, policy=SimPolicy(), seed=0)
    guest = complete_answer(outlook_steps(simulation, "borrower/guest", runs=2, found=snapshot))
    whole = risk(simulation, runs=2, found=view_on(snapshot, SimPolicy()))
    assert [guest.risk] == list(whole.workloads)
    assert guest.risk is not None
    assert (guest.risk.probability, guest.runs) == (1.0, 2)
    owner = complete_answer(outlook_steps(simulation, "lender/owner", runs=2, found=snapshot))
    assert owner.risk is None


def test_nothing_comes_for_what_has_ended_or_is_not_there() -> None:
    simulation = after(1, "1h")
    nothing = Progress(answer=WorkloadOutlook(time=simulation.now, until=simulation.now, runs=0), last=True)
    assert [*outlook_steps(simulation, "a/past-0"), *outlook_steps(simulation, "a/nobody")] == [nothing, nothing]
