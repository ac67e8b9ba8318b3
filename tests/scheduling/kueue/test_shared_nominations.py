"""What heads that are alike share of a nomination is what each of them would be told by itself."""

from random import Random
from typing import Any
from unittest.mock import patch

from hypothesis import given, settings
from hypothesis import strategies as st

from gpuconsole.model.clock import SECOND
from gpuconsole.model.events import AdmissionDecision
from gpuconsole.scheduling.kueue import nomination_cache
from tests.tools.bench.drain import Drain
from tests.tools.bench.kueue_loads import Kind, Load, arrivals, objects

STEPS = 300
"""Some loads never end: queues that reclaim from each other at once."""
KINDS = (
    Kind("small", 10, 50, 400, 50, 1_000),
    Kind("medium", 5, 120, 300, 100, 5_000),
    Kind("large", 5, 100, 300, 100, 20_000),
)


def decided(cohorts: int, queues: int, batch: int, seed: int) -> list[AdmissionDecision]:
    """What is decided, cycle by cycle, about a part of the load, so that queues use different amounts."""
    load = Load(name="any", cohorts=cohorts, queues=queues, kinds=KINDS, floor=0, kueue=0, bar=0, goal=0)
    draw = Random(seed)
    drain = Drain(objects(load), [one for one in arrivals(load) if draw.random() < 0.6], batch=batch)
    kept: list[AdmissionDecision] = []
    run = drain.session.run_cycle

    def told(now: int, **options: Any) -> list[AdmissionDecision]:
        found = run(now, **options)
        kept.extend(found)
        return found

    with patch.object(drain.session, "run_cycle", told):
        for _ in range(STEPS):
            if not drain._proceed():
                break
    return kept


@given(st.integers(1, 2), st.integers(2, 5), st.sampled_from((0, SECOND)), st.integers(0, 999))
@settings(max_examples=15, deadline=None)
def test_alike_heads_are_told_what_each_would_be_told_alone(cohorts: int, queues: int, batch: int, seed: int) -> None:
    shared = decided(cohorts, queues, batch, seed)
    with patch.object(nomination_cache, "_has_no_targets", lambda context, entry, alike: False):
        assert shared == decided(cohorts, queues, batch, seed)
