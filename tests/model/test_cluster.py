"""What a pod asks for, what it tolerates, and which labels a requirement matches."""

import pytest

from gpuconsole.model.labels import LabelSelector, Requirement, Taint, Toleration
from gpuconsole.model.pod_template import Container, PodTemplate

REQUESTS = {
    "containers add up": (
        PodTemplate(containers=(Container(requests={"cpu": 2}), Container(requests={"cpu": 3}))),
        {"cpu": 5},
    ),
    "a missing request is its limit": (
        PodTemplate(containers=(Container(requests={"cpu": 1}, limits={"cpu": 9, "nvidia.com/gpu": 4}),)),
        {"cpu": 1, "nvidia.com/gpu": 4},
    ),
    "an init container needs its share only while it runs": (
        PodTemplate(containers=(Container(requests={"cpu": 2}),), init_containers=(Container(requests={"cpu": 7}),)),
        {"cpu": 7},
    ),
    "a sidecar runs beside the containers": (
        PodTemplate(
            containers=(Container(requests={"cpu": 2}),),
            init_containers=(Container(requests={"cpu": 1}, sidecar=True),),
        ),
        {"cpu": 3},
    ),
    "an init container after a sidecar runs beside it": (
        PodTemplate(
            containers=(Container(requests={"cpu": 2}),),
            init_containers=(Container(requests={"cpu": 1}, sidecar=True), Container(requests={"cpu": 4})),
        ),
        {"cpu": 5},
    ),
    "overhead comes on top": (
        PodTemplate(containers=(Container(requests={"cpu": 2}),), overhead={"cpu": 1, "memory": 8}),
        {"cpu": 3, "memory": 8},
    ),
}


@pytest.mark.parametrize(("template", "want"), REQUESTS.values(), ids=REQUESTS)
def test_what_one_pod_requests(template: PodTemplate, want: dict[str, int]) -> None:
    assert template.requests == want


GPU = Taint("nvidia.com/gpu", "present", "NoSchedule")
TOLERATED = {
    "the same key and value": (Toleration("nvidia.com/gpu", "Equal", "present", "NoSchedule"), True),
    "another value": (Toleration("nvidia.com/gpu", "Equal", "absent", "NoSchedule"), False),
    "Exists takes any value": (Toleration("nvidia.com/gpu", "Exists"), True),
    "another effect": (Toleration("nvidia.com/gpu", "Exists", "", "NoExecute"), False),
    "no key with Exists takes everything": (Toleration("", "Exists"), True),
    "no key with Equal takes nothing": (Toleration("", "Equal", "present"), False),
}


@pytest.mark.parametrize(("toleration", "want"), TOLERATED.values(), ids=TOLERATED)
def test_a_toleration_covers_a_taint(toleration: Toleration, want: bool) -> None:
    assert toleration.tolerates(GPU) is want


LABELS = {"gpu": "a100", "gen": "8"}
MATCHES = {
    "In": (Requirement("gpu", "In", ("a100", "h100")), True),
    "In, key missing": (Requirement("zone", "In", ("a",)), False),
    "NotIn": (Requirement("gpu", "NotIn", ("h100",)), True),
    "NotIn, key missing": (Requirement("zone", "NotIn", ("a",)), True),
    "Exists": (Requirement("gpu", "Exists"), True),
    "DoesNotExist": (Requirement("gpu", "DoesNotExist"), False),
    "Gt compares as integers": (Requirement("gen", "Gt", ("7",)), True),
    "Lt": (Requirement("gen", "Lt", ("8",)), False),
    "Gt of a word never matches": (Requirement("gpu", "Gt", ("7",)), False),
    "an unknown operator never matches": (Requirement("gpu", "Near", ("a100",)), False),
}


@pytest.mark.parametrize(("requirement", "want"), MATCHES.values(), ids=MATCHES)
def test_a_requirement_over_labels(requirement: Requirement, want: bool) -> None:
    assert requirement.matches(LABELS) is want


def test_an_empty_selector_selects_everything() -> None:
    assert LabelSelector().matches({})
    assert not LabelSelector({"team": "a"}).matches({})
