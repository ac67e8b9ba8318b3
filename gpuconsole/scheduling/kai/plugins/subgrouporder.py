"""subgrouporder plugin: pod sets below their minimum come first, then those the least above it (KAI 0.13)."""

from gpuconsole.scheduling.kai.api.pod_sets import PodSetInfo
from gpuconsole.scheduling.kai.conf import KaiPluginArguments
from gpuconsole.scheduling.kai.session import KaiSession


class SubGroupOrder:
    """Registers the order of pod sets."""

    def __init__(self, arguments: KaiPluginArguments) -> None:
        pass

    def open(self, session: KaiSession) -> None:
        session.functions.pod_set_order.append(compare_sub_groups)


def compare_sub_groups(one: PodSetInfo, other: PodSetInfo) -> int:
    """Negative if the first pod set comes first, 0 if undecided, as between two below their minimum."""
    mine, theirs = one.active_allocated >= one.minimum, other.active_allocated >= other.minimum
    if not mine or not theirs:
        return mine - theirs
    ratio, other_ratio = _ratio(one), _ratio(other)
    return (ratio > other_ratio) - (ratio < other_ratio)


def _ratio(pod_set: PodSetInfo) -> float:
    return pod_set.active_allocated / pod_set.minimum if pod_set.minimum else float("inf")
