"""MIG layouts: legality, NVIDIA's counts, and which place keeps most mixes reachable."""

from itertools import combinations

import pytest

from gpuconsole.model.gpus.mig import (
    Layout,
    MigGeometry,
    MigPlacement,
    MigProfile,
    layouts,
    maximal,
    mix,
    ordered,
    reachable,
)
from gpuconsole.model.gpus.models import MODELS, Links, model_of

EIGHTHS = [name for name, model in MODELS.items() if model.mig is not None and model.mig.slices == 8]


def geometry(name: str) -> MigGeometry:
    found = MODELS[name].mig
    assert found is not None
    return found


A100 = geometry("a100-80gb")


def at(text: str) -> Layout:
    """`4g.40gb@0 3g.40gb@4` as a layout."""
    return tuple(MigPlacement(name, int(start)) for name, _, start in (word.partition("@") for word in text.split()))


def by_hand(found: MigGeometry, profiles: tuple[MigProfile, ...]) -> set[Layout]:
    """All sets of instances whose spans are apart and whose compute slices suffice: tried one by one."""
    places = [(p, s, set(range(s, s + p.span))) for p in profiles for s in p.starts]
    legal = set()
    for size in range(1, 8):
        for some in combinations(places, size):
            covered = [slot for _, _, span in some for slot in span]
            if len(covered) == len(set(covered)) and sum(p.compute for p, _, _ in some) <= found.compute:
                legal.add(ordered(MigPlacement(p.name, s) for p, s, _ in some))
    return legal


@pytest.mark.parametrize("name", EIGHTHS)
def test_every_model_with_eight_slices_has_297_layouts_of_which_19_are_maximal_in_14_mixes(name: str) -> None:
    found = geometry(name)
    full = maximal(found, found.plain)
    assert (len(layouts(found, found.plain)), len(full), len({mix(one) for one in full})) == (297, 19, 14)


@pytest.mark.parametrize("name", EIGHTHS)
def test_with_the_double_memory_profile_there_are_722_layouts_of_which_78_are_maximal_in_38_mixes(name: str) -> None:
    found = geometry(name)
    full = maximal(found, found.sized)
    assert (len(layouts(found, found.sized)), len(full), len({mix(one) for one in full})) == (722, 78, 38)


@pytest.mark.parametrize("doubled", [False, True])
def test_the_layouts_are_those_that_trying_every_set_finds(doubled: bool) -> None:
    profiles = A100.sized if doubled else A100.plain
    tried = by_hand(A100, profiles)
    assert set(layouts(A100, profiles)) == tried
    assert set(maximal(A100, profiles)) == {one for one in tried if not any(set(one) < set(other) for other in tried)}


def test_the_fourteen_mixes_are_those_that_nvidia_lists() -> None:
    wanted = """7 | 4 3 | 4 2 1 | 4 1 1 1 | 3 3 | 3 2 2 | 3 2 1 1 | 3 2 1 | 3 1 1 1 1 | 3 1 1 1 | 2 2 2 1 | 2 2 1 1 1
    | 2 1 1 1 1 1 | 1 1 1 1 1 1 1"""
    listed = {tuple(sorted(part.split())) for part in wanted.split("|")}
    assert {tuple(name[0] for name in mix(one)) for one in maximal(A100, A100.plain)} == listed


@pytest.mark.parametrize(
    ("layout", "objection"),
    [
        ("4g.40gb@0 3g.40gb@4", ""),
        ("3g.40gb@0 2g.20gb@4 1g.10gb@6", ""),
        ("3g.40gb@0 3g.40gb@4 1g.10gb@6", "1g.10gb@6 overlaps another instance"),
        ("2g.20gb@1", "2g.20gb cannot begin at slice 1"),
        ("1g.20gb@0 1g.20gb@2 1g.20gb@4 1g.20gb@6", ""),
        ("4g.40gb@0 2g.20gb@4 1g.20gb@6", ""),
        ("1g.10gb+me@0 1g.10gb+me@1", "only one instance can have the media engines"),
        ("1g.5gb@0", "the GPU has no profile 1g.5gb"),
    ],
)
def test_a_layout_is_legal_or_says_why_not(layout: str, objection: str) -> None:
    assert A100.objection(at(layout)) == objection


def test_a_layout_has_no_more_compute_slices_than_the_gpu() -> None:
    tight = MigGeometry(3, 4, geometry("a30").profiles)
    assert tight.objection(at("2g.12gb@0 2g.12gb@2")) == "it has 4 compute slices; the GPU has 3"


def test_an_a30_has_four_slices() -> None:
    found = geometry("a30")
    assert {mix(one) for one in maximal(found, found.plain)} == {
        ("4g.24gb",),
        ("2g.12gb", "2g.12gb"),
        ("1g.6gb", "1g.6gb", "2g.12gb"),
        ("1g.6gb", "1g.6gb", "1g.6gb", "1g.6gb"),
    }


def test_a_3g_at_slice_4_keeps_more_mixes_reachable_than_at_slice_0() -> None:
    assert reachable(A100, ()) == 14
    three = A100.by_name["3g.40gb"]
    assert {start: A100.open_to((), three, start) for start in three.starts} == {0: 3, 4: 5}


@pytest.mark.parametrize(
    ("wanted", "layout"),
    [
        ("3g.40gb 2g.20gb 1g.10gb 1g.10gb", "2g.20gb@0 1g.10gb@2 1g.10gb@3 3g.40gb@4"),
        ("1g.10gb " * 7, " ".join(f"1g.10gb@{n}" for n in range(7))),
        ("3g.40gb 4g.40gb", "4g.40gb@0 3g.40gb@4"),
        ("3g.40gb 3g.40gb 1g.10gb", None),
        ("7g.80gb 1g.10gb", None),
        ("9g.90gb", None),
    ],
)
def test_profiles_are_packed_into_a_legal_layout_if_there_is_one(wanted: str, layout: str | None) -> None:
    assert A100.pack(wanted.split()) == (None if layout is None else at(layout))


def test_a_resource_name_finds_its_profile() -> None:
    found = A100.profile_of("nvidia.com/mig-1g.10gb.me")
    assert found is not None
    assert found.name == "1g.10gb+me"
    assert A100.profile_of("nvidia.com/mig-1g.5gb") is None


@pytest.mark.parametrize(
    ("product", "name"),
    [
        ("NVIDIA-A100-SXM4-40GB", "a100-40gb"),
        ("NVIDIA-A100-SXM4-80GB-MIG-1g.10gb", "a100-80gb"),
        ("NVIDIA-H100-NVL-94GB", "h100-94gb"),
        ("NVIDIA-GH200-96GB", "h100-96gb"),
        ("NVIDIA-H200", "h200"),
        ("NVIDIA-B200", "b200"),
        ("NVIDIA-GB200", "gb200"),
        ("NVIDIA-B300", "b300"),
        ("NVIDIA-A30", "a30"),
        ("NVIDIA-RTX-PRO-6000-Blackwell-Server-Edition", "rtx-pro-6000"),
        ("Tesla-T4-SHARED", "t4"),
    ],
)
def test_labels_name_the_model(product: str, name: str) -> None:
    found = model_of({"nvidia.com/gpu.product": product})
    assert found is not None
    assert found.name == name


def test_names_of_profiles_are_rounded_shares_of_the_memory() -> None:
    for name in EIGHTHS:
        total = MODELS[name].memory // 1024
        for profile in geometry(name).plain:
            size = int(profile.name.partition(".")[2].removesuffix("gb"))
            assert abs(size - total * profile.span / 8) < 1, (name, profile.name)
    assert MODELS["h100-94gb"].links is Links.PAIRS
