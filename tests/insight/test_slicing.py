"""Slices that leave pods over, and the numbers of pods that they would divide."""

import pytest

from gpuconsole.insight.pending.pending import undivided
from gpuconsole.model.pod_template import PodSet, TopologyRequest


@pytest.mark.parametrize(
    ("size", "count", "told"),
    [(4, 6, (2, "run 4 or 8 pods")), (4, 3, (3, "run 4 pods")), (4, 8, None), (None, 6, None)],
)
def test_slices_leave_over_what_they_do_not_divide(size: int | None, count: int, told: tuple[int, str] | None) -> None:
    odd = undivided(PodSet(topology=TopologyRequest(slice_size=size)), count)
    assert (odd and (odd.left_over, odd.helps)) == told


def test_pods_that_ask_for_no_place_are_in_no_slices() -> None:
    assert undivided(PodSet(), 6) is None
