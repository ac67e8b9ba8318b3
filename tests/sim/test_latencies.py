"""Latencies of controllers: what is drawn has the measured quantiles, and the same seed draws the same."""

from random import Random

import pytest

from gpuconsole.model.clock import MILLISECOND, SECOND, Span
from gpuconsole.sim.chance import draw
from gpuconsole.sim.engine import Simulation
from gpuconsole.sim.latencies import MEASURED, Latencies, LatencyDistribution
from gpuconsole.sim.policy import SimPolicy
from tests.sim.cluster import two_teams

STEPS = Latencies.__struct_fields__


def distribution(step: str) -> LatencyDistribution:
    found: LatencyDistribution = getattr(MEASURED, step)
    return found


def ten_thousand(latency: LatencyDistribution) -> list[Span]:
    random = Random(7)
    return sorted(latency.sample(random) for _ in range(10_000))


@pytest.mark.parametrize("step", STEPS)
def test_draws_have_the_quantiles_of_their_distribution(step: str) -> None:
    latency, drawn = distribution(step), ten_thousand(distribution(step))
    found = [drawn[10_000 * percent // 100] for percent in (5, 50, 90, 99)]
    assert found == pytest.approx([latency.p5, latency.p50, latency.p90, latency.p99], rel=0.15)
    assert drawn[0] >= 1
    assert 0.9 * latency.max < drawn[-1] <= latency.max


def test_the_same_seed_and_names_draw_the_same() -> None:
    def five(seed: int, name: str) -> list[Span]:
        random = draw(seed, "latency", name)
        return [MEASURED.status_update.sample(random) for _ in range(5)]

    assert five(1, "red/a") == five(1, "red/a")
    assert len({tuple(five(1, "red/a")), tuple(five(2, "red/a")), tuple(five(1, "red/b"))}) == 3


def test_a_constant_is_always_the_same_and_takes_one_number_like_any_other() -> None:
    random, other = Random(1), Random(1)
    assert LatencyDistribution.constant(SECOND).sample(random) == SECOND
    MEASURED.start.sample(other)
    assert random.random() == other.random()


def test_a_step_never_takes_place_at_the_moment_of_its_cause() -> None:
    short = LatencyDistribution(p5=0, p50=0, p90=0, p99=0, max=MILLISECOND)
    assert [LatencyDistribution.constant(0).sample(Random(0)), ten_thousand(short)[0]] == [1, 1]


@pytest.mark.parametrize("quantiles", [(-1, 0, 0, 0, 0), (2, 1, 3, 4, 5), (1, 2, 3, 5, 4)])
def test_quantiles_that_decrease_are_refused(quantiles: tuple[Span, ...]) -> None:
    with pytest.raises(ValueError, match="quantiles must not decrease"):
        LatencyDistribution(**dict(zip(("p5", "p50", "p90", "p99", "max"), quantiles, strict=True)))


def test_latencies_are_saved_with_the_simulation() -> None:
    simulation = Simulation.from_objects(two_teams(), policy=SimPolicy(latencies=MEASURED), seed=0, start=0)
    assert Simulation.load(simulation.save()).policy.latencies == MEASURED
