"""The tree of hierarchical DRF: shares of queues by weight, level by level, jobs as leaves."""

from gpuconsole.scheduling.volcano.api.job import JobInfo
from gpuconsole.scheduling.volcano.api.queue import QueueInfo
from gpuconsole.scheduling.volcano.api.resource import Resource
from gpuconsole.scheduling.volcano.plugins.queue_attributes import dominant_share


class Branch:
    """A queue, or a job, in the tree. Mutates as tasks come and go."""

    __slots__ = ("allocated", "children", "request", "saturated", "share", "weight")

    def __init__(self, weight: float = 1.0, job: JobInfo | None = None) -> None:
        self.weight = weight
        self.allocated = Resource()
        self.share = 0.0
        self.request = Resource() if job is None else job.total_request.clone()
        self.saturated = False
        """True if it cannot use more: a job has all that it requests of some resource, or that resource is used up."""
        self.children: dict[str, Branch] | None = {} if job is None else None

    def clone(self) -> "Branch":
        """An independent copy."""
        twin = Branch(self.weight)
        twin.allocated, twin.share, twin.request = self.allocated.clone(), self.share, self.request
        twin.saturated = self.saturated
        twin.children = None if self.children is None else {name: one.clone() for name, one in self.children.items()}
        return twin


class DrfTree:
    """The whole tree, and the resources allocated to all jobs. Mutates as tasks come and go."""

    def __init__(self, total: Resource) -> None:
        self._total = total
        self.root = Branch()
        self.allocated = Resource()

    def clone(self) -> "DrfTree":
        """An independent copy."""
        twin = DrfTree(self._total)
        twin.root, twin.allocated = self.root.clone(), self.allocated.clone()
        return twin

    def set_job(self, queue: QueueInfo, job: JobInfo, allocated: Resource) -> None:
        """Set what a job has allocated, and compute all shares again."""
        branch = self.root
        weights = queue.weights.split("/")
        for level, name in enumerate(queue.hierarchy.split("/")[1:], start=1):
            children = branch.children if branch.children is not None else {}
            if name not in children:
                children[name] = Branch(_weight(weights, level))
            branch = children[name]
        leaf = Branch(job=job)
        leaf.allocated, leaf.share = allocated, dominant_share(allocated, self._total)
        if branch.children is not None:
            branch.children[job.uid] = leaf
        demanded = {name for name in self._total.names() if self.allocated.get(name) < self._total.get(name)}
        self._weigh(self.root, demanded)

    def compare(self, left: QueueInfo, right: QueueInfo) -> float:
        """Negative if the left queue comes first: unsaturated queues first, then by share per weight, from the root
        down.
        """
        ours = theirs = self.root
        pairs = list(zip(left.hierarchy.split("/"), right.hierarchy.split("/"), strict=False))
        for level in range(len(pairs)):
            if ours.saturated != theirs.saturated:
                return 1.0 if ours.saturated else -1.0
            difference = ours.share / ours.weight - theirs.share / theirs.weight
            if difference:
                return difference
            if level + 1 < len(pairs):
                names = pairs[level + 1]
                ours, theirs = (ours.children or {})[names[0]], (theirs.children or {})[names[1]]
        return 0.0

    def _weigh(self, branch: Branch, demanded: set[str]) -> None:
        """Set a branch's share from its children, scaled to the smallest share of those that are not saturated."""
        if branch.children is None:
            branch.saturated = _saturated(branch, demanded)
            return
        children = branch.children.values()
        for child in children:
            self._weigh(child, demanded)
        open_ones = [child for child in children if child.share and not child.saturated]
        least = min([1.0, *(dominant_share(child.allocated, self._total) for child in open_ones)])
        branch.allocated = Resource()
        for child in children:
            if child.share:
                part = child.allocated.clone()
                branch.allocated.add(part if child.saturated else part.multiply(least / child.share))
        branch.share = dominant_share(branch.allocated, self._total)
        branch.saturated = all(child.saturated for child in children)


def _saturated(branch: Branch, demanded: set[str]) -> bool:
    for name in branch.allocated.names():
        has, wants = branch.allocated.get(name), branch.request.get(name)
        if has and wants and has >= wants:
            return True
        if name not in demanded and wants:
            return True
    return False


def _weight(weights: list[str], level: int) -> float:
    """The weight of a level; 1 if it is missing, no number, or less than 1."""
    try:
        return max(float(weights[level]), 1.0)
    except (IndexError, ValueError):
        return 1.0
