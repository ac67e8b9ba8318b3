"""The lines on the queue under the cursor: its limits, flavor by flavor."""

import pytest
from msgspec.structs import replace

from gpuconsole.insight.index.available_quota import usable_quota
from gpuconsole.insight.index.quota_tree import quota_tree
from gpuconsole.model.cluster import Namespace
from gpuconsole.model.devices import DeviceClass
from gpuconsole.model.objects import Object
from gpuconsole.model.queues import (
    ClusterQueue,
    Cohort,
    FlavorQuotas,
    LocalQueue,
    Quota,
    ResourceFlavor,
    ResourceGroup,
    StopPolicy,
)
from gpuconsole.model.resources import GPU
from gpuconsole.ui.paint import plain
from gpuconsole.ui.queue_table import GPUS, tree_rows
from gpuconsole.ui.screens.queues import about
from tests.support.console_clusters import recorded
from tests.support.console_stage import SIZES, staged
from tests.support.snapshots import cluster_queue, group, world

MIG = "nvidia.com/mig-1g.10gb"


@pytest.mark.parametrize(
    ("quotas", "limits"),
    [
        ({"h100": Quota(8, 8)}, "borrowing limit 8 · lending limit ∞"),
        ({"h100": Quota(8), "a100": Quota(4)}, "borrowing limit ∞ · lending limit ∞"),
        ({"h100": Quota(8, 8), "a100": Quota(4)}, "borrowing limit h100 8, a100 ∞ · lending limit ∞"),
        (
            {"h100": Quota(8, 8, 2), "a100": Quota(4, 0)},
            "borrowing limit h100 8, a100 0 · lending limit h100 2, a100 ∞",
        ),
    ],
)
def test_limits_of_several_flavors_are_told_one_by_one(quotas: dict[str, Quota], limits: str) -> None:
    queue = cluster_queue("q", "org", resource_groups=(group(quotas),))
    rows = tree_rows(quota_tree(world([queue])), {}, GPUS)
    (row,) = (row for row in rows if row.node.name == "q")
    assert [text for text in map(plain, about(row)) if text.startswith(f" {limits} · ")] != []


def test_available_quota_of_dra_devices_is_told_flavor_by_flavor() -> None:
    devices = {"new": Quota(8, 8), "old": Quota(4)}
    groups = (group(devices, "claimed-gpus"), group({"cpus": Quota(1000)}, "cpu"))
    queue = cluster_queue("q", "org", resource_groups=groups)
    snapshot = world(
        [queue, DeviceClass(name="gpu.example.com"), *(ResourceFlavor(name=n) for n in ("new", "old", "cpus"))]
    )
    (row,) = (row for row in tree_rows(quota_tree(snapshot), {}, GPUS) if row.node.name == "q")
    first, limits, *_ = map(plain, about(row, usable_quota(snapshot, "q")))
    assert "DRA devices: available new 8 (max 8), old 4 (max 4)" in first
    assert limits.startswith(" borrowing limit new 8, old ∞ · ")


def test_a_flavor_has_its_own_limits() -> None:
    queue = cluster_queue("q", "", resource_groups=(group({"h100": Quota(8, 8), "a100": Quota(4)}),))
    rows = tree_rows(quota_tree(world([queue])), {">cluster_queue:q": 2}, GPUS)
    told = [plain(about(row)[-2]) for row in rows if row.flavor]
    assert [text.partition(" · ")[0] for text in told] == [" borrowing limit 8", " borrowing limit ∞"]


OWN = cluster_queue("q", "org", resource_groups=(group({"h100": Quota(4)}),))
OPEN = LocalQueue(namespace="t", name="lq", cluster_queue="q")
HELD = "it is stopped (Hold)"
NOTHING = "admits no workloads: "


@pytest.mark.parametrize(
    ("queue", "door", "told"),
    [
        (OWN, OPEN, ("available 12, max 12", "available 12, max 12")),
        (replace(OWN, stop_policy=StopPolicy.HOLD), OPEN, (f"{NOTHING}{HELD}", f"{NOTHING}{HELD}")),
        (
            OWN,
            replace(OPEN, stop_policy=StopPolicy.HOLD),
            (f"{NOTHING}each of its LocalQueues is stopped (t/lq)", f"{NOTHING}{HELD}"),
        ),
    ],
    ids=["open", "held", "its only LocalQueue held"],
)
async def test_a_queue_that_admits_nobody_could_take_nothing_now(
    queue: ClusterQueue, door: LocalQueue, told: tuple[str, str]
) -> None:
    """Its cohort would lend it 8 of the 12."""
    lender = cluster_queue("lender", "org", resource_groups=(group({"h100": Quota(8)}),))
    things: list[Object] = [ResourceFlavor(name="h100"), Cohort(name="org"), lender, queue, door, Namespace(name="t")]
    async with staged(recorded(things), (160, 50)) as stage:
        await stage.press("2", "j", "j")
        assert f"ClusterQueue q  gpu: {told[0]}" in stage.line("ClusterQueue q  gpu")
        await stage.press("j")
        assert f"LocalQueue t/lq  gpu: {told[1]}" in stage.line("LocalQueue t/lq  gpu")


@pytest.mark.parametrize("size", SIZES)
async def test_nothing_of_the_lines_on_a_queue_or_of_a_question_is_cut(size: tuple[int, int]) -> None:
    """Eight flavors do not fit beside each other."""
    names = [f"accelerator-{n}" for n in range(8)]
    queue = cluster_queue("q", "org", resource_groups=(group({name: Quota(4, 2) for name in names}),))
    flavors = [ResourceFlavor(name=name) for name in names]
    async with staged(recorded([*flavors, Cohort(name="org"), queue, OPEN]), size) as stage:
        await stage.press("2", "j")
        text = " ".join(stage.text.split())
        for said in (f"{name} 4 (max 4)" for name in names):
            assert said in text
        await stage.press("s")
        dialog = " ".join(line.partition("│")[2].partition("│")[0].strip() for line in stage.lines)
        assert (
            "Workloads with quota continue (0 running, 0 reserved or admitted); 0 stay pending until it is resumed."
            in dialog
        )


def test_two_resources_of_one_flavor_are_told_apart() -> None:
    both = ResourceGroup((GPU, MIG), (FlavorQuotas("a100", {GPU: Quota(8, 2), MIG: Quota(7)}),))
    snapshot = world([ResourceFlavor(name="a100"), cluster_queue("q", "org", resource_groups=(both,))])
    (row,) = (row for row in tree_rows(quota_tree(snapshot), {}, GPUS) if row.node.name == "q")
    first, limits, _ = map(plain, about(row))
    assert first.endswith("available a100 gpu 8 (max 8), a100 mig-1g.10gb 7 (max 7)")
    assert limits.startswith(" borrowing limit a100 gpu 2, a100 mig-1g.10gb ∞ · ")
