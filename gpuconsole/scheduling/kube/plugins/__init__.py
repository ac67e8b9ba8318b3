"""kube-scheduler's plugins by name; a profile says which of them are asked, and what their scores count."""

from collections.abc import Mapping

from gpuconsole.scheduling.kube.plugins import (
    imagelocality,
    interpodaffinity,
    nodeaffinity,
    nodename,
    noderesourcesbalancedallocation,
    noderesourcesfit,
    nodeunschedulable,
    podtopologyspread,
    tainttoleration,
)
from gpuconsole.scheduling.kube.plugins.roles import Booking, Meeting, Scoring, Standing, Wishing
from gpuconsole.scheduling.kube.profile import (
    BALANCED,
    FIT,
    IMAGES,
    NODE_AFFINITY,
    NODE_NAME,
    NODE_UNSCHEDULABLE,
    POD_AFFINITY,
    SPREAD,
    TAINT_TOLERATION,
)

NODE_FILTERS: Mapping[str, Standing] = {
    NODE_UNSCHEDULABLE: nodeunschedulable.node_filter,
    NODE_NAME: nodename.node_filter,
    TAINT_TOLERATION: tainttoleration.node_filter,
    NODE_AFFINITY: nodeaffinity.node_filter,
}
"""By the node alone."""
BOOKS_FILTERS: Mapping[str, Booking] = {FIT: noderesourcesfit.books_filter}
"""By what is on the node."""
MEETINGS: Mapping[str, Meeting] = {SPREAD: podtopologyspread.meeting, POD_AFFINITY: interpodaffinity.meeting}
"""By pods anywhere."""
BOOKS_SCORES: Mapping[str, Scoring] = {
    FIT: noderesourcesfit.score,
    BALANCED: noderesourcesbalancedallocation.score,
    IMAGES: imagelocality.score,
}
WISHES: Mapping[str, Wishing] = {SPREAD: podtopologyspread.wish, POD_AFFINITY: interpodaffinity.wish}
