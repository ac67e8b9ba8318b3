"""Numbers that no cluster has: these are refused, and nothing else is."""

import pytest

from gpuconsole.model.cluster import Node
from gpuconsole.model.job import BatchRules, Job
from gpuconsole.model.kai import KaiQueue
from gpuconsole.model.objects import MOST_LEVELS, Object, insane_values, too_deep
from gpuconsole.model.pod_template import PodSet
from gpuconsole.model.queues import Cohort
from gpuconsole.model.resources import GPU
from gpuconsole.model.volcano import VolcanoQueue


def nested(levels: int) -> dict[str, str]:
    """c0 lies in c1, and so on; the last one has so many below it."""
    return {f"c{n}": f"c{n + 1}" if n < levels else "" for n in range(levels + 1)}


@pytest.mark.parametrize("turned", [False, True], ids=["inner first", "outer first"])
def test_the_first_that_has_too_many_levels_above_it_is_named(turned: bool) -> None:
    def asked(levels: int) -> str:
        found = nested(levels)
        return too_deep(dict(reversed(found.items())) if turned else found)

    assert (asked(MOST_LEVELS), asked(MOST_LEVELS + 1)) == ("", "c0")
    assert asked(5_000) == (f"c{5_000 - MOST_LEVELS - 1}" if turned else "c0")


def test_a_circle_and_what_hangs_on_it_have_no_levels() -> None:
    ring = {f"r{n}": f"r{(n + 1) % 300}" for n in range(300)}
    assert too_deep({**ring, "on-it": "r7", "lost": "nowhere"}) == ""


PAIRS: dict[str, tuple[Object, Object, str]] = {
    "GPUs of a node": (
        Node(name="n", allocatable={GPU: 4096, "cpu": 2**62}),
        Node(name="n", allocatable={GPU: 4097}),
        "Node/n allocatable[nvidia.com/gpu]: 4097 are more than a machine has; write 4096 or less",
    ),
    "pieces of a job": (
        Job(namespace="t", name="j", pod_sets=(PodSet(),), rules=BatchRules(completions=2**31 - 1)),
        Job(namespace="t", name="j", pod_sets=(PodSet(),), rules=BatchRules(completions=2**31)),
        "Job/t/j rules.completions: 2147483648 is out of range; write 0 to 2147483647",
    ),
    "fewer pieces than none": (
        Job(namespace="t", name="j", pod_sets=(PodSet(),), rules=BatchRules(completions=0)),
        Job(namespace="t", name="j", pod_sets=(PodSet(),), rules=BatchRules(completions=-1)),
        "Job/t/j rules.completions: -1 is out of range; write 0 to 2147483647",
    ),
    "a Job without pods": (
        Job(namespace="t", name="j", pod_sets=(PodSet(),), rules=BatchRules()),
        Job(namespace="t", name="j", rules=BatchRules()),
        "Job/t/j pod_sets: there is none; a Job has one",
    ),
}


@pytest.mark.parametrize(("right", "wrong", "text"), PAIRS.values(), ids=PAIRS)
def test_what_is_wrong_is_named_with_what_would_be_right(right: Object, wrong: Object, text: str) -> None:
    assert (list(insane_values([right])), list(insane_values([wrong]))) == ([], [text])


@pytest.mark.parametrize("kind", [Cohort, VolcanoQueue, KaiQueue])
def test_of_each_kind_that_lies_in_others_the_depth_counts(kind: type[Cohort | VolcanoQueue | KaiQueue]) -> None:
    things = [kind(name=name, parent=parent) for name, parent in nested(MOST_LEVELS + 1).items()]
    assert list(insane_values(things)) == [
        f"{kind.__name__}/c0 parent: more than 100 levels lie above it; nest fewer in each other"
    ]
    assert list(insane_values(things[1:])) == []
