"""The MIG instances of a node, read from what it offers, its labels and its annotations."""

from collections import Counter
from time import process_time

import pytest

from gpuconsole.model.gpus.mig import MigInstance, MigPlacement
from gpuconsole.model.gpus.mig_reconfiguration import DYNAMIC, LAYOUT, Division, division_of, written

A100 = {"nvidia.com/gpu.product": "NVIDIA-A100-SXM4-80GB"}
MIG = "nvidia.com/mig-"


def read(offered: dict[str, int], labels: dict[str, str] | None = None, **annotations: str) -> Division:
    named = {LAYOUT: annotations.get("layout", ""), DYNAMIC: annotations.get("dynamic", "")}
    found = division_of({MIG + name: count for name, count in offered.items()}, A100 | (labels or {}), named)
    assert found is not None
    return found


def shown(division: Division) -> list[str]:
    return [f"{one.gpu}/{one.profile}@{one.start}" for one in division.instances]


def test_what_is_offered_is_laid_on_as_few_gpus_as_it_takes() -> None:
    found = read({"3g.40gb": 2, "2g.20gb": 1, "1g.10gb": 1})
    assert shown(found) == ["0/3g.40gb@0", "0/3g.40gb@4", "1/1g.10gb@2", "1/2g.20gb@0"]
    assert found.gpus == 2


def test_what_is_offered_is_laid_evenly_where_the_node_says_how_many_gpus_it_has() -> None:
    found = read({"3g.40gb": 2, "2g.20gb": 2, "1g.10gb": 4}, {"nvidia.com/gpu.count": "2"})
    assert Counter((one.gpu, one.profile) for one in found.instances) == {
        (gpu, profile): count for gpu in (0, 1) for profile, count in (("3g.40gb", 1), ("2g.20gb", 1), ("1g.10gb", 2))
    }


def test_many_instances_on_an_unknown_number_of_gpus_are_laid_at_once() -> None:
    began = process_time()
    found = read({"1g.10gb": 56})
    assert process_time() - began < 2
    assert (found.gpus, Counter(one.gpu for one in found.instances)) == (8, dict.fromkeys(range(8), 7))


def test_an_annotation_says_where_instances_lie() -> None:
    text = "3g.40gb@0 | - | 1g.10gb@6"
    found = read({"3g.40gb": 1, "1g.10gb": 1}, layout=text)
    assert found.instances == (MigInstance(0, "3g.40gb", 0), MigInstance(2, "1g.10gb", 6))
    assert found.gpus == 3
    assert written([(MigPlacement("3g.40gb", 0),), None, (MigPlacement("1g.10gb", 6),)]) == text


@pytest.mark.parametrize("layout", ["3g.40gb@1", "3g.40gb@0 | 1g.10gb", "1g.10gb@0", "3g.40gb@0 1g.10gb@9", "x"])
def test_an_annotation_that_cannot_be_true_is_ignored(layout: str) -> None:
    assert shown(read({"3g.40gb": 1, "1g.10gb": 1}, layout=layout)) == shown(read({"3g.40gb": 1, "1g.10gb": 1}))


def test_gpus_that_are_divided_as_pods_come_have_no_instances_yet() -> None:
    found = read({"1g.10gb": 14}, dynamic="2")
    assert (found.dynamic, found.gpus, found.instances) == (True, 2, ())
    assert not read({"1g.10gb": 14}, dynamic="many").dynamic


@pytest.mark.parametrize(
    ("allocatable", "labels"),
    [
        ({"nvidia.com/gpu": 8}, A100),
        ({MIG + "1g.5gb": 7}, A100),
        ({MIG + "9g.9gb": 7}, {}),
        ({MIG + "1g.10gb": 0}, A100),
    ],
)
def test_a_node_without_instances_of_a_known_model_has_no_division(
    allocatable: dict[str, int], labels: dict[str, str]
) -> None:
    assert division_of(allocatable, labels, {}) is None


def test_a_node_that_does_not_name_its_model_is_taken_for_one_that_has_the_profiles() -> None:
    found = division_of({MIG + "1g.18gb": 7}, {}, {})
    assert found is not None
    assert found.geometry.by_name["7g.141gb"].span == 8
