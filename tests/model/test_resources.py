"""Vectors of amounts: sums saturate, shares round towards zero, and pods are counted by what is scarcest."""

import pytest

from gpuconsole.model.resources import (
    MANY,
    MAX,
    MIN,
    Resources,
    add,
    count_in,
    divide,
    exceeding,
    not_negative,
    scale,
    subtract,
)

SUMS: dict[str, tuple[Resources, Resources]] = {
    "resources of both vectors are in the sum": (
        add({"cpu": 1000, "memory": 5}, {"memory": 3, "pods": 1}),
        {"cpu": 1000, "memory": 8, "pods": 1},
    ),
    "a sum that is too large stays the largest": (add({"cpu": MAX}, {"cpu": 1}), {"cpu": MAX}),
    "a sum that is too small stays the smallest": (add({"cpu": MIN}, {"cpu": -1}), {"cpu": MIN}),
    "what is taken may be more than there is": (
        subtract({"cpu": 1}, {"cpu": 3, "memory": 2}),
        {"cpu": -2, "memory": -2},
    ),
    "taking the smallest from nothing is the largest": (subtract({}, {"cpu": MIN}), {"cpu": MAX}),
    "pods multiply": (scale({"cpu": 1500}, 4), {"cpu": 6000}),
    "pods multiply no further than 64 bits": (scale({"cpu": MAX // 2}, 3), {"cpu": MAX}),
    "one pod's share is rounded towards zero": (divide({"cpu": 1000, "memory": -7}, 3), {"cpu": 333, "memory": -2}),
    "nothing of no pods is nothing": (divide({"cpu": 0}, 0), {"cpu": 0}),
    "less than nothing is nothing": (not_negative({"cpu": -100, "memory": 5}), {"cpu": 0, "memory": 5}),
}


@pytest.mark.parametrize(("got", "want"), SUMS.values(), ids=SUMS)
def test_vectors_are_reckoned_with_as_64_bits(got: Resources, want: Resources) -> None:
    assert got == want


def test_taking_nothing_gives_the_very_vector_back() -> None:
    vector = {"cpu": 1}
    assert subtract(vector, {}) is vector


COUNTS: dict[str, tuple[Resources, Resources, tuple[int, str]]] = {
    "the scarcest resource decides": ({"cpu": 1000, "memory": 4}, {"cpu": 8000, "memory": 9}, (2, "memory")),
    "of equally scarce ones the first by name": ({"memory": 1, "cpu": 1}, {"cpu": 3, "memory": 3}, (3, "cpu")),
    "what nobody has cannot be given": ({"cpu": 1, "nvidia.com/gpu": 1}, {"cpu": 5}, (0, "nvidia.com/gpu")),
    "a node that is overcommitted takes nothing": ({"cpu": 1000}, {"cpu": -3000}, (0, "cpu")),
    "asking for none of it is no obstacle": ({"cpu": 0, "memory": 8}, {"cpu": 0, "memory": 17}, (2, "memory")),
    "counts end somewhere": ({"memory": 1}, {"memory": 2**40}, (MANY, "memory")),
    "requests of nothing fit not at all": ({}, {"cpu": 8000}, (0, "")),
}


@pytest.mark.parametrize(("requests", "capacity", "want"), COUNTS.values(), ids=COUNTS)
def test_pods_are_counted_by_what_is_scarcest(requests: Resources, capacity: Resources, want: tuple[int, str]) -> None:
    assert count_in(requests, capacity) == want


def test_only_what_is_bounded_can_be_too_much() -> None:
    assert exceeding({"memory": 3, "cpu": 2, "pods": 9}, {"cpu": 1, "memory": 2}) == ["cpu", "memory"]
