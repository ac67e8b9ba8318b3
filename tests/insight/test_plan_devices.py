"""Plans for workloads that request MIG instances, replicas of shared GPUs, or DRA devices."""

import pytest
from msgspec.structs import replace

from gpuconsole.insight.whatif.plan import plan
from gpuconsole.model.clock import MINUTE
from gpuconsole.model.commands import AddNodes, Command, SetQuota, Submit
from gpuconsole.model.job import Job
from gpuconsole.sim.engine import Simulation
from gpuconsole.ui.answers.cluster_reports import plan_lines
from tests.insight.test_device_units import KINDS, Kind, simulation


def jobs(base: Simulation, count: int) -> list[Command]:
    """More jobs like the first one: one device each."""
    (first, *_) = (job for job in base.snapshot().jobs.all() if isinstance(job, Job))
    return [Submit((replace(first, name=f"more-{n}", uid="", suspended=True),)) for n in range(count)]


def full(kind: Kind, quota: int) -> Simulation:
    """One of two devices is in use, and quota is left for so many in all."""
    base = simulation(kind, kueue=True, jobs=1)
    base.submit(SetQuota("cq", "a100", kind.resource, quota))
    base.advance(base.now + MINUTE)
    return base


@pytest.mark.parametrize("name", KINDS)
def test_the_least_quota_is_found_in_the_unit_of_the_devices(name: str) -> None:
    kind = KINDS[name]
    base = full(kind, 1)
    found = plan(base, jobs(base, 1), MINUTE)
    assert found.best is not None
    assert (found.best.kind, found.best.words, found.best.hourly) == ("quota", f"quota cq +1 {kind.unit} of a100", 0.0)
    assert found.best.commands == (SetQuota("cq", "a100", kind.resource, 2),)
    assert f"cheapest option that meets the target: quota cq +1 {kind.unit} of a100" in "\n".join(plan_lines(found))


@pytest.mark.parametrize("name", KINDS)
def test_the_least_nodes_are_found_that_offer_the_devices(name: str) -> None:
    base = full(KINDS[name], 8)
    found = plan(base, jobs(base, 4), MINUTE)
    assert found.best is not None
    assert (found.best.kind, found.best.commands) == ("nodes", (AddNodes("n1", 2),))
    assert found.best.hourly > 0


@pytest.mark.parametrize("name", KINDS)
def test_quota_and_nodes_are_found_together_where_neither_is_enough(name: str) -> None:
    kind = KINDS[name]
    base = full(kind, 1)
    found = plan(base, jobs(base, 4), MINUTE)
    assert found.best is not None
    assert found.best.words == f"quota cq +4 {kind.unit}s of a100, 2 more nodes like n1"
    assert found.best.commands == (SetQuota("cq", "a100", kind.resource, 5), AddNodes("n1", 2))
