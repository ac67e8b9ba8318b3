"""What was tried for a workload, in the words of its page."""

from gpuconsole.insight.pending.why import rehearsal_on, trying
from gpuconsole.model.cluster import Namespace
from gpuconsole.model.queues import LocalQueue, Quota, ResourceFlavor
from gpuconsole.scheduling.kueue.config import DEFAULT
from gpuconsole.ui.paint import plain
from gpuconsole.ui.workload_text import tried_lines
from tests.support.snapshots import cluster_queue, group, waiting, world


def test_each_flavor_that_lacks_something_has_its_arithmetic() -> None:
    groups = (group({"a100": Quota(2), "h100": Quota(3)}),)
    snapshot = world(
        [
            *(ResourceFlavor(name=name) for name in ("a100", "h100")),
            cluster_queue("q", resource_groups=groups),
            Namespace(name="ns"),
            LocalQueue(namespace="ns", name="lq", cluster_queue="q"),
            waiting("new", "ns/lq", 4),
        ]
    )
    (first, *_) = trying(snapshot, rehearsal_on(snapshot, DEFAULT), "ns/new")
    assert first.answer is not None
    told = [plain(row).strip() for row in tried_lines(first.answer)]
    assert [text for text in told if "needs" in text] == [
        "h100 nvidia.com/gpu: needs 4, available 3, maximum capacity 3 · 1 more needed, limited by ClusterQueue q",
        "a100 nvidia.com/gpu: needs 4, available 2, maximum capacity 2 · 2 more needed, limited by ClusterQueue q",
    ]
