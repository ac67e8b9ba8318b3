"""Volcano's resource vectors: what is less, what is nothing, and what a dimension that is missing counts as."""

import pytest

from gpuconsole.model.resources import CPU, EPHEMERAL_STORAGE, GPU, MEMORY, PODS
from gpuconsole.scheduling.volcano.api.resource import (
    INFINITY,
    ZERO,
    MissingAmount,
    Resource,
    common_names,
    excess,
    without_ignored,
)

SMALL = Resource(1000, 100, {GPU: 1000.0})
LARGE = Resource(2000, 200, {GPU: 2000.0})


def test_amounts_are_taken_in_milli_units_but_pods() -> None:
    amounts = {CPU: 1500, MEMORY: 1024, GPU: 2, PODS: 110, EPHEMERAL_STORAGE: 3, "hugepages-2Mi": 4}
    wanted = Resource(1500, 1024, {GPU: 2000, PODS: 110, EPHEMERAL_STORAGE: 3000, "hugepages-2Mi": 4000}, 110)
    assert Resource.from_amounts(amounts) == wanted


@pytest.mark.parametrize("name", ["storage", "requests.nvidia.com/gpu", "count/jobs.batch"])
def test_names_that_are_no_resources_of_nodes_do_not_count(name: str) -> None:
    assert Resource.from_amounts({name: 5}) == Resource()


def test_a_resource_that_a_device_plugin_hands_out_itself_can_be_left_out() -> None:
    assert Resource.from_amounts({"volcano.sh/vgpu-number": 1, GPU: 1}, ["volcano.sh/vgpu-number"]) == Resource(
        0, 0, {GPU: 1000}
    )


COMPARED: dict[str, tuple[Resource, Resource, MissingAmount, tuple[bool, bool]]] = {
    # less or equal, less in part
    "less of everything": (SMALL, LARGE, ZERO, (True, True)),
    "more of everything": (LARGE, SMALL, ZERO, (False, False)),
    "the same": (SMALL, SMALL, ZERO, (True, False)),
    "the same within the tolerance": (Resource(1000.05, 100), Resource(1000, 100), ZERO, (True, False)),
    "more than the tolerance": (Resource(1000.2, 100), Resource(1000, 90), ZERO, (False, False)),
    "a scalar that only the first names, as zero": (SMALL, Resource(2000, 200), ZERO, (False, True)),
    "a scalar that only the first names, as infinity": (SMALL, Resource(2000, 200), INFINITY, (True, True)),
    "a scalar that only the second names, as zero": (Resource(1000, 100), LARGE, ZERO, (True, True)),
    "a scalar that only the second names, as infinity": (
        Resource(1000, 100),
        LARGE,
        INFINITY,
        (False, True),
    ),
    "only an unlimited scalar is less": (
        Resource(9, 9, {GPU: 1}),
        Resource(1, 1),
        INFINITY,
        (False, True),
    ),
    "only a scalar of nobody is less": (Resource(9, 9), Resource(1, 1, {GPU: 1}), ZERO, (False, True)),
}


@pytest.mark.parametrize("name", COMPARED)
def test_two_vectors_are_compared(name: str) -> None:
    left, right, default, wanted = COMPARED[name]
    got = (
        left.less_equal(right, default),
        left.is_less_in_any(right, default),
    )
    assert got == wanted


def test_what_exceeds_is_named_in_order() -> None:
    left, right = Resource(3, 1, {"b/b": 2, "a/a": 2, "c/c": 0}), Resource(1, 1, {"b/b": 1})
    assert left.exceeded_names(right) == [CPU, "a/a", "b/b"]
    assert left.exceeded_names(right, INFINITY) == [CPU, "b/b"]


def test_only_what_a_request_names_is_compared() -> None:
    used, most = Resource(5, 5, {GPU: 5, PODS: 9}), Resource(4, 6, {PODS: 1})
    asked = Resource(1, 1, {GPU: 1, PODS: 1})
    assert used.exceeded_requested_names(most, asked) == [CPU, GPU]
    assert used.exceeded_requested_names(most, Resource(0, 1)) == []
    assert used.requested_names_within(most, asked) == [MEMORY]
    assert used.requested_names_above(most, asked) == [CPU, GPU]
    assert used.relevant_names_above(most, asked) == [CPU]
    assert used.requested_names_above(None, asked) == [CPU, MEMORY, GPU]
    assert used.relevant_names_above(None, asked) == []


def test_a_dimension_of_which_neither_has_anything_is_not_within() -> None:
    nothing, asked = Resource(0, 5), Resource(1, 1, {GPU: 1})
    assert nothing.requested_names_within(Resource(0, 9), asked) == [CPU, MEMORY, GPU]
    assert nothing.used_names_within(Resource(0, 9), asked) == [MEMORY]


def test_vectors_are_added_subtracted_and_multiplied_in_place() -> None:
    total = SMALL.copy()
    assert total.add(LARGE) is total
    assert total == Resource(3000, 300, {GPU: 3000})
    assert total.sub(LARGE).sub(LARGE) == Resource(-1000, -100, {GPU: -1000})
    assert SMALL.copy().multiply(1.5) == Resource(1500, 150, {GPU: 1500})
    assert Resource(1000, 100, {GPU: 1000}) == SMALL


def test_scalars_are_only_taken_from_a_vector_that_has_some() -> None:
    assert Resource(9, 9).sub(SMALL).scalars is None
    assert Resource(9, 9, {}).sub(SMALL).scalars == {GPU: -1000}


def test_each_dimension_is_lowered_to_another() -> None:
    high = Resource(1000, 500, {"a/a": 1, GPU: 1000})
    assert high.copy().set_min(Resource(1, 900), ZERO) == Resource(1, 500, {"a/a": 0, GPU: 0})
    assert high.copy().set_min(Resource(1, 900, {GPU: 7}), INFINITY) == Resource(1, 500, {"a/a": 1, GPU: 7})


def test_a_difference_has_two_sides() -> None:
    left, right = Resource(5, 1, {GPU: 3, "a/a": 1}), Resource(2, 4, {GPU: 4})
    assert left.diff(right, ZERO) == (Resource(3, 0, {"a/a": 1}), Resource(0, 3, {GPU: 1}))
    assert left.diff(right, INFINITY)[1] == Resource(0, 3, {GPU: 1, "a/a": -1})
    assert excess(left, right) == Resource(3, 0, {"a/a": 1})


def test_what_is_less_than_a_tenth_is_nothing() -> None:
    dust = Resource(0.05, 0.05, {GPU: 0.05, PODS: 3})
    assert (dust.is_empty(), dust.names()) == (True, [PODS])
    assert not Resource(0, 0, {GPU: 0.1}).is_empty()


def test_names_that_both_have_tell_nothing_of_pods() -> None:
    both = common_names(Resource(1, 0, {GPU: 1, PODS: 1}), Resource(1, 1, {GPU: 1, PODS: 1}))
    assert (both, without_ignored(both)) == ([CPU, GPU, PODS], [CPU, GPU])


@pytest.mark.parametrize(
    ("amount", "text"),
    [
        (Resource(1000, 2, {"b/b": 1, "a/a": 2.345}), "cpu 1000.00, memory 2.00, a/a 2.35, b/b 1.00"),
        (Resource.infinite(), "cpu maxFloat, memory maxFloat"),
        (Resource(float(2**63 - 1), 0), "cpu maxInt, memory 0.00"),
    ],
)
def test_a_vector_is_written_as_volcano_writes_it(amount: Resource, text: str) -> None:
    assert str(amount) == text
