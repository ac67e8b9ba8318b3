"""Back-off of refused pods before they are tried again (kube-scheduler's scheduling queue). Mutates.

Not simulated: kube-scheduler's flush, which retries every unschedulable pod after five minutes.
"""

from gpuconsole.model.clock import Time
from gpuconsole.scheduling.kube.pending import Order, PodBatch, PodGang, Unit
from gpuconsole.scheduling.kube.profile import BackoffSettings

MARK = "delay="
Turn = tuple[int, Time, Time, str]
"""Sort key in the queue: (−priority, time since which it is queued, creation time, pod key)."""


def gang_key(gang: str) -> str:
    """Key under which a gang's back-off is kept."""
    return f"gang {gang}"


class PodBackoff:
    """Back-off times by pod, or by gang where pods start together; without settings there is no back-off."""

    def __init__(self, rule: BackoffSettings | None) -> None:
        self._rule = rule
        self._attempts: dict[str, int] = {}
        self._until: dict[str, Time] = {}
        self._since: dict[str, Time] = {}

    def fork(self) -> "PodBackoff":
        """An independent copy."""
        twin = PodBackoff(self._rule)
        twin._attempts, twin._until = self._attempts.copy(), self._until.copy()
        twin._since = self._since.copy()
        return twin

    @property
    def idle(self) -> bool:
        """True if no refusal of a pending pod or gang is recorded."""
        return not self._until

    def until(self, key: str) -> Time:
        """When the back-off of a pod or gang ends, perhaps in the past; 0 if it has none."""
        return self._until.get(key, 0)

    def turn(self, unit: Unit, now: Time) -> Turn | None:
        """Sort key of a pod or gang that can be tried; None during its back-off.

        A refusal moves it behind pending pods of its priority that were refused earlier (PrioritySort).
        """
        priority, created, pod = unit.order
        if self.idle:
            return priority, created, created, pod
        if self.due(unit) > now:
            return None
        if isinstance(unit, PodGang):
            return priority, self._queued(gang_key(unit.name), created), created, pod
        _, created, pod = self._next(unit, now)
        return priority, self._queued(pod, created), created, pod

    def due(self, unit: Unit) -> Time:
        """When the first pod of the unit may be tried; 0 if at once."""
        if isinstance(unit, PodGang):
            return self.until(gang_key(unit.name))
        return min(self.until(pod) for pod in unit.pods)

    def first(self, line: PodBatch, now: Time) -> str:
        """The pod of the batch that is tried next: of those whose back-off is over, the one that has waited longest."""
        return line.order[2] if self.idle else self._next(line, now)[2]

    def _next(self, line: PodBatch, now: Time) -> Order:
        ready = (order for order in line.orders if self.until(order[2]) <= now)
        return min(ready, key=lambda order: (self._queued(order[2], order[1]), order))

    def _queued(self, key: str, created: Time) -> Time:
        return self._since.get(key, created)

    def refuse_line(self, line: PodBatch, now: Time) -> None:
        """Record a refusal for every pod of the batch that could be tried."""
        for pod in line.pods if self._rule is not None else ():
            if self.until(pod) <= now:
                self.refuse(pod, now)

    def refuse(self, key: str, now: Time) -> None:
        """Record a refusal: start or extend the back-off."""
        if self._rule is None:
            return
        attempts = self._attempts[key] = self._attempts.get(key, 0) + 1
        self._until[key] = now + self._rule.after(attempts)
        self._since[key] = now

    def forget(self, key: str) -> None:
        """Delete the back-off state of a pod or gang."""
        if self._attempts.pop(key, None) is not None:
            del self._until[key], self._since[key]

    def memory(self) -> tuple[str, ...]:
        """All back-off state as text, one line for each pod or gang."""
        return tuple(
            f"{MARK}{attempts}@{self._until[key]}@{self._since[key]}@{key}"
            for key, attempts in sorted(self._attempts.items())
        )

    def recall(self, line: str) -> None:
        """Restore one line of `memory`."""
        attempts, until, since, key = line.removeprefix(MARK).split("@", 3)
        self._attempts[key], self._until[key], self._since[key] = int(attempts), int(until), int(since)
