"""The lines on the queue under the cursor: its limits, flavor by flavor."""

import pytest

from gpuconsole.insight.quota import quota_tree
from gpuconsole.model.queues import Quota
from gpuconsole.ui.paint import plain
from gpuconsole.ui.queue_words import about
from gpuconsole.ui.screens.queue_rows import GPUS, tree_rows
from tests.insight.world import cluster_queue, group, world


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


def test_a_flavor_has_its_own_limits() -> None:
    queue = cluster_queue("q", "", resource_groups=(group({"h100": Quota(8, 8), "a100": Quota(4)}),))
    rows = tree_rows(quota_tree(world([queue])), {">cluster_queue:q": 2}, GPUS)
    told = [plain(about(row)[-2]) for row in rows if row.flavor]
    assert [text.partition(" · ")[0] for text in told] == [" borrowing limit 8", " borrowing limit ∞"]
