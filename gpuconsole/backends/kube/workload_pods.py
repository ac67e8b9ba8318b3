"""Pods of each Workload, including recently deleted ones, to know what ran when it was evicted."""

from collections import deque
from collections.abc import Collection

from gpuconsole.model.clock import MINUTE, Span, Time
from gpuconsole.model.cluster import Pod

LATELY: Span = MINUTE
"""Time for which a deleted pod is kept, because the eviction may be reported after the deletion of its pods."""


class WorkloadPods:
    """Pods by Workload. Mutable; for one thread."""

    def __init__(self) -> None:
        self._pods: dict[str, dict[str, Pod]] = {}
        """Workload → key → pod."""
        self._workload: dict[str, str] = {}
        """Pod → its Workload."""
        self._gone: deque[tuple[Time, Pod]] = deque()
        self._left: dict[str, dict[str, tuple[Time, Pod]]] = {}
        """Workload → UID → pods of `_gone`."""

    def come(self, pod: Pod) -> None:
        """Add or update a pod."""
        if pod.workload:
            self._pods.setdefault(pod.workload, {})[pod.key] = pod
            self._workload[pod.key] = pod.workload

    def go(self, key: str, now: Time) -> None:
        """Remove a deleted pod."""
        workload = self._workload.pop(key, "")
        pods = self._pods.get(workload, {})
        pod = pods.pop(key, None)
        if not pods:
            self._pods.pop(workload, None)
        if pod is not None and not pod.done:
            self._gone.append((now, pod))
            self._left.setdefault(workload, {})[pod.uid] = (now, pod)
        while self._gone and self._gone[0][0] < now - LATELY:
            self._forget(self._gone.popleft()[1])

    def of(self, workload: str, at: Time) -> Collection[Pod]:
        """Return the pods that a Workload had at a recent time."""
        left = [pod for time, pod in self._left.get(workload, {}).values() if time >= at]
        return [*left, *(pod for pod in self._pods.get(workload, {}).values() if pod.created <= at)]

    def _forget(self, pod: Pod) -> None:
        left = self._left[pod.workload]
        left.pop(pod.uid, None)
        if not left:
            del self._left[pod.workload]
