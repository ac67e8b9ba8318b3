"""Creation times of submitted objects: the moment of the command, as an API server sets them."""

from msgspec.structs import replace

from gpuconsole.model.clock import HOUR, MINUTE
from tests.support.sim_cluster import START, job, start, submit, two_teams


def test_a_job_is_created_when_it_is_submitted_whatever_its_manifest_says() -> None:
    simulation = start(two_teams())
    simulation.advance(START + 10 * MINUTE)
    submit(simulation, replace(job("form-opened-earlier"), created=START - HOUR))
    snapshot = simulation.snapshot()
    created = [
        *(one.created for one in snapshot.jobs.all() if one.name == "form-opened-earlier"),
        *(one.created for one in snapshot.workloads.all() if one.owner.endswith("form-opened-earlier")),
    ]
    assert created == [START + 10 * MINUTE] * 2


def test_jobs_of_one_priority_start_in_the_order_in_which_they_were_submitted() -> None:
    simulation = start(two_teams())
    submit(simulation, job("full", gpus=8, duration=30 * MINUTE))
    simulation.advance(START + 10 * MINUTE)
    submit(simulation, replace(job("first", gpus=8), created=START + 10 * MINUTE))
    simulation.advance(START + 20 * MINUTE)
    submit(simulation, replace(job("second", gpus=8), created=START + 5 * MINUTE))
    simulation.advance(START + 40 * MINUTE)
    running = [one.owner.rpartition("/")[2] for one in simulation.snapshot().workloads.all() if one.admission]
    assert running == ["first"]
