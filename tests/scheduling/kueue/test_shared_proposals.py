"""What heads that are alike share of a nomination is what each of them would be told by itself."""

from collections.abc import Iterator
from unittest.mock import patch

from hypothesis import given, settings
from hypothesis import strategies as st

from gpuconsole.model.clock import SECOND
from gpuconsole.model.decisions import AdmissionDecision
from gpuconsole.scheduling.kueue import nomination
from tests.tools.bench.drain import Drain
from tests.tools.bench.kueue_loads import Kind, Load, arrivals, objects

kinds = st.builds(
    Kind,
    st.uuids().map(str),
    number=st.integers(1, 5),
    interval=st.integers(20, 200),
    runtime=st.integers(50, 500),
    priority=st.sampled_from((50, 100)),
    cpu=st.sampled_from((1_000, 5_000, 20_000, 30_000)),
)


class Recorded(Drain):
    """A drain that keeps every decision."""

    def decisions(self) -> Iterator[AdmissionDecision]:
        """What every cycle decides, in order, until nothing is left to happen."""
        kept: list[AdmissionDecision] = []
        run = self.session.run_cycle

        def told(now: int) -> list[AdmissionDecision]:
            found = run(now)
            kept.extend(found)
            return found

        with patch.object(self.session, "run_cycle", told):
            self.run()
        yield from kept


def decided(load: Load, *, batch: int) -> list[AdmissionDecision]:
    return list(Recorded(objects(load), arrivals(load), batch=batch).decisions())


@given(st.lists(kinds, min_size=1, max_size=3), st.integers(1, 2), st.integers(1, 5), st.sampled_from((0, SECOND)))
@settings(max_examples=25, deadline=None)
def test_alike_heads_are_told_what_each_would_be_told_alone(
    some: list[Kind], cohorts: int, queues: int, batch: int
) -> None:
    load = Load(name="any", cohorts=cohorts, queues=queues, kinds=tuple(some), floor=0.0, kueue=0.0, bar=0.0, goal=0.0)
    shared = decided(load, batch=batch)
    with patch.object(nomination, "_likeness", lambda context, entry: None):
        assert shared == decided(load, batch=batch)
