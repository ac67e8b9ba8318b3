"""What divided GPUs are offered as, mig-parted's configurations, and changes of geometry."""

import pytest

from gpuconsole.model.gpus.mig import GeometryChange, Layout, MigGeometry, MigPlacement, change
from gpuconsole.model.gpus.mig_reconfiguration import (
    Config,
    MigConfigError,
    MigConfigSpec,
    MigStrategy,
    divided,
    known,
    offer,
    read,
)
from gpuconsole.model.gpus.models import MODELS

MODEL = MODELS["a100-80gb"]
PRODUCT = "NVIDIA-A100-SXM4-80GB"
SEVEN = {"1g.10gb": 7}


def geometry() -> MigGeometry:
    assert MODEL.mig is not None
    return MODEL.mig


def layout(text: str) -> Layout:
    return tuple(MigPlacement(name, int(start)) for name, _, start in (word.partition("@") for word in text.split()))


def config(model: str, name: str) -> Config:
    found = known(MODELS[model], name)
    assert found is not None
    return found


BALANCED = divided(config("a100-80gb", "all-balanced"), MODEL, 2)
SMALL = divided(config("a100-80gb", "all-1g.10gb"), MODEL, 2)
OFF = divided(config("a100-80gb", "all-disabled"), MODEL, 2)


@pytest.mark.parametrize(
    ("strategy", "gpus", "resources", "problem"),
    [
        (MigStrategy.NONE, SMALL, {"nvidia.com/gpu": 2}, ""),
        (MigStrategy.SINGLE, OFF, {"nvidia.com/gpu": 2}, ""),
        (MigStrategy.SINGLE, SMALL, {"nvidia.com/gpu": 14}, ""),
        (MigStrategy.SINGLE, BALANCED, {"nvidia.com/gpu": 0}, "more than one MIG device type present on node"),
        (
            MigStrategy.SINGLE,
            (SMALL[0], None),
            {"nvidia.com/gpu": 0},
            "all devices on the node must be configured with the same migEnabled value",
        ),
        (
            MigStrategy.SINGLE,
            (SMALL[0], ()),
            {"nvidia.com/gpu": 0},
            "at least one device with migEnabled=true was not configured correctly",
        ),
        (MigStrategy.MIXED, OFF, {"nvidia.com/gpu": 2}, ""),
        (
            MigStrategy.MIXED,
            (BALANCED[0], None),
            {
                "nvidia.com/gpu": 1,
                "nvidia.com/mig-1g.10gb": 2,
                "nvidia.com/mig-2g.20gb": 1,
                "nvidia.com/mig-3g.40gb": 1,
            },
            "",
        ),
    ],
)
def test_a_strategy_says_what_a_node_offers(
    strategy: MigStrategy, gpus: tuple[Layout | None, ...], resources: dict[str, int], problem: str
) -> None:
    found = offer(MODEL, PRODUCT, gpus, strategy)
    assert (found.resources, found.problem) == (resources, problem)


def test_labels_under_single_describe_the_instance() -> None:
    labels = offer(MODEL, PRODUCT, SMALL, MigStrategy.SINGLE).labels
    assert labels == {
        "nvidia.com/gpu.product": "NVIDIA-A100-SXM4-80GB-MIG-1g.10gb",
        "nvidia.com/gpu.count": "14",
        "nvidia.com/gpu.memory": "9856",
        "nvidia.com/gpu.multiprocessors": "14",
        "nvidia.com/gpu.slices.gi": "1",
        "nvidia.com/gpu.slices.ci": "1",
        "nvidia.com/mig.capable": "true",
        "nvidia.com/mig.strategy": "single",
    }


def test_labels_under_mixed_describe_the_gpu_and_each_profile() -> None:
    labels = offer(MODEL, PRODUCT, BALANCED, MigStrategy.MIXED).labels
    assert (labels["nvidia.com/gpu.product"], labels["nvidia.com/gpu.count"]) == (PRODUCT, "2")
    assert labels["nvidia.com/mig-1g.10gb.count"] == "4"
    assert labels["nvidia.com/mig-3g.40gb.product"] == "NVIDIA-A100-SXM4-80GB-MIG-3g.40gb"


def test_a_gpu_without_mig_is_offered_whole_under_any_strategy() -> None:
    assert offer(MODELS["l4"], "NVIDIA-L4", (None, None), MigStrategy.MIXED).resources == {"nvidia.com/gpu": 2}


@pytest.mark.parametrize(
    ("model", "name", "part"),
    [
        ("a100-80gb", "all-disabled", MigConfigSpec(enabled=False)),
        ("a100-80gb", "all-enabled", MigConfigSpec(enabled=True)),
        ("a100-80gb", "all-1g.10gb", MigConfigSpec(enabled=True, instances=SEVEN)),
        ("a100-80gb", "all-1g.10gb.me", MigConfigSpec(enabled=True, instances={"1g.10gb+me": 1})),
        ("a100-80gb", "all-1g.20gb", MigConfigSpec(enabled=True, instances={"1g.20gb": 4})),
        ("h200", "all-3g.71gb", MigConfigSpec(enabled=True, instances={"3g.71gb": 2})),
        ("a30", "all-2g.12gb", MigConfigSpec(enabled=True, instances={"2g.12gb": 2})),
        ("h200", "all-balanced", MigConfigSpec(enabled=True, instances={"1g.18gb": 2, "2g.35gb": 1, "3g.71gb": 1})),
        ("a30", "all-balanced", MigConfigSpec(enabled=True, instances={"1g.6gb": 2, "2g.12gb": 1})),
    ],
)
def test_mig_parted_ships_configurations_by_name(model: str, name: str, part: MigConfigSpec) -> None:
    assert known(MODELS[model], name) == (part,)


def test_a_name_of_another_model_is_not_known() -> None:
    assert known(MODEL, "all-1g.5gb") is None
    assert known(MODELS["l4"], "all-1g.5gb") is None


def test_every_configuration_by_name_fits_its_model() -> None:
    for model in MODELS.values():
        names = [] if model.mig is None else ["balanced", *(p.name.replace("+", ".") for p in model.mig.profiles)]
        for name in names:
            assert divided(config(model.name, f"all-{name}"), model, 1)[0]


CUSTOM = """
version: v1
mig-configs:
  half:
    - {devices: [0], mig-enabled: false}
    - {devices: [1], mig-enabled: true, mig-devices: {1g.10gb: 7}}
  by-model:
    - {device-filter: ["0x20B010DE", "0x20B110DE"], devices: all, mig-enabled: true, mig-devices: {1g.5gb: 7}}
    - {device-filter: "0x20B210DE", devices: all, mig-enabled: true, mig-devices: {1g.10gb+me: 1, 3g.40gb: 1}}
"""


def test_a_file_divides_gpus_by_index_and_by_model() -> None:
    configs, findings = read(CUSTOM)
    assert findings == []
    assert divided(configs["half"], MODEL, 3) == (None, layout(" ".join(f"1g.10gb@{n}" for n in range(7))), None)
    assert divided(configs["by-model"], MODEL, 1) == (layout("1g.10gb+me@0 3g.40gb@4"),)
    assert [len(one or ()) for one in divided(configs["by-model"], MODELS["a100-40gb"], 2)] == [7, 7]


WRONG = """
version: v2
mig-configs:
  a:
    - {devices: some, mig-enabled: true}
  b:
    - {devices: all, mig-devices: {1g.10gb: 7}}
  c:
    - {devices: all, mig-enabled: true, mig-devices: {3g.40gb: 2, 1g.10gb: 1}}
  d:
    - {devices: all, mig-enabled: true, mig-devices: {tiny: 1}, device-filter: nvidia}
"""


def test_what_is_wrong_with_a_file_is_found_with_its_path() -> None:
    assert [(one.line, one.path, one.problem) for one in read(WRONG)[1]] == [
        (2, "version", "'v2' is not known"),
        (5, "mig-configs.a[0].devices", "'some' names no GPUs"),
        (7, "mig-configs.b[0].mig-enabled", "mig-enabled is missing"),
        (7, "mig-configs.b[0].mig-devices", "there are instances where MIG is off"),
        (9, "mig-configs.c[0].mig-devices", "no GPU can be divided into 2 × 3g.40gb + 1 × 1g.10gb"),
        (11, "mig-configs.d[0].mig-devices.tiny", "'tiny' is not a MIG profile"),
        (11, "mig-configs.d[0].device-filter", "'nvidia' is not a PCI ID"),
    ]
    assert read("- a")[1][0].problem == "a configuration is a mapping"
    assert len(read("a: [")[1]) == 1


def test_a_configuration_that_does_not_fit_a_gpu_says_so() -> None:
    with pytest.raises(MigConfigError, match=r"GPU 0 \(a100-80gb\) cannot be divided into 1 × 1g\.5gb"):
        divided((MigConfigSpec(enabled=True, instances={"1g.5gb": 1}),), MODEL, 1)
    with pytest.raises(MigConfigError, match=r"GPU 0 \(l4\) has no MIG"):
        divided((MigConfigSpec(enabled=True),), MODELS["l4"], 1)


def test_turning_mig_on_resets_the_gpu_so_that_its_owner_has_to_leave() -> None:
    found = change(geometry(), None, ["3g.40gb"])
    assert found == GeometryChange(layout=layout("3g.40gb@4"), created=layout("3g.40gb@4"), reset=True)
    assert found.leavers({}, ["default/train"]) == ("default/train",)


def test_turning_mig_off_sends_all_owners_away() -> None:
    old = layout("1g.10gb@0 3g.40gb@4")
    found = change(geometry(), old, None)
    assert found == GeometryChange(layout=None, removed=old, reset=True)
    assert found.leavers({old[0]: "default/b", old[1]: "default/a"}) == ("default/a", "default/b")


def test_only_owners_of_instances_that_go_have_to_leave() -> None:
    old = layout("1g.10gb@0 1g.10gb@1 1g.10gb@2 3g.40gb@4")
    found = change(geometry(), old, ["2g.20gb", "1g.10gb", "3g.40gb"], busy=old[:2])
    assert found == GeometryChange(
        layout=layout("1g.10gb@0 2g.20gb@2 3g.40gb@4"),
        removed=layout("1g.10gb@1 1g.10gb@2"),
        created=layout("2g.20gb@2"),
    )
    assert found.leavers({old[0]: "default/a", old[1]: "default/b"}) == ("default/b",)


def test_idle_instances_go_rather_than_busy_ones() -> None:
    old = layout("3g.40gb@0 3g.40gb@4")
    found = change(geometry(), old, ["3g.40gb", "1g.10gb", "1g.10gb"], busy=old[:1])
    assert found is not None
    assert found.removed == old[1:]


def test_a_layout_that_cannot_be_has_no_way_to_it() -> None:
    assert change(geometry(), (), ["7g.80gb", "1g.10gb"]) is None
    assert change(geometry(), None, ["7g.80gb", "1g.10gb"]) is None
