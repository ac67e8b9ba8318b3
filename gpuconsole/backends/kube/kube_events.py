"""History from Kubernetes Events: what Kueue and the schedulers did before the console connected or while it was
offline.

Changes that conditions have reported are not reported again: an Event of the same kind about the same workload within
15 seconds is the same change.
"""

from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator

from gpuconsole.backends.kube.change_events import ChangeEvents
from gpuconsole.backends.kube.decode import CoreEvent
from gpuconsole.model.clock import SECOND, Span, Time
from gpuconsole.model.events import HistoryEvent, HistoryEventKind
from gpuconsole.model.workloads import Workload
from gpuconsole.scheduling.kueue.messages import rule_in

SAME: Span = 15 * SECOND
REMEMBERED = 20_000
OF_A_KIND = 64
"""Most remembered history events of one kind about one workload: a day of thrashing."""
EVICTED_DUE_TO = "EvictedDueTo"
_WHAT = {
    "QuotaReserved": HistoryEventKind.RESERVED,
    "Admitted": HistoryEventKind.ADMITTED,
    "Preempted": HistoryEventKind.PREEMPTED,
}
"""Reason → kind of history event. The reason why a workload is pending is in its conditions."""
_UNSCHEDULABLE = "FailedScheduling"


class KubeEventReader:
    """Converts Events to history events. Mutable: remembers recent ones to avoid duplicates."""

    def __init__(self, chronicler: ChangeEvents, workload: Callable[[str], Workload | None]) -> None:
        self._chronicler = chronicler
        self._workload = workload
        self._lately: OrderedDict[tuple[HistoryEventKind, str], deque[tuple[Time, str]]] = OrderedDict()

    def note_written(self, line: HistoryEvent) -> None:
        """Record a history event. Several are kept, because Events of earlier ones may arrive later."""
        key = (line.what, line.workload or line.pod)
        self._lately.setdefault(key, deque(maxlen=OF_A_KIND)).append((line.time, line.message))
        self._lately.move_to_end(key)
        if len(self._lately) > REMEMBERED:
            self._lately.popitem(last=False)

    def lines(self, event: CoreEvent) -> Iterator[HistoryEvent]:
        """Yield the history events that a Kubernetes Event adds."""
        line = self._line(event)
        if line is None or self._known(line):
            return
        self.note_written(line)
        yield line

    def _known(self, line: HistoryEvent) -> bool:
        times = self._lately.get((line.what, line.workload or line.pod))
        # If a workload was admitted at the same time, its admission has been reported instead.
        if line.what is HistoryEventKind.RESERVED and _lately(
            self._lately.get((HistoryEventKind.ADMITTED, line.workload), ()), line.time
        ):
            return True
        if not times:
            return False
        return _lately(times, line.time) or (line.what is HistoryEventKind.PENDING and times[-1][1] == line.message)

    def _line(self, event: CoreEvent) -> HistoryEvent | None:
        if event.kind == "Pod" and event.reason == _UNSCHEDULABLE:
            return HistoryEvent(
                time=event.time,
                what=HistoryEventKind.PENDING,
                pod=event.key,
                reason="Unschedulable",
                message=event.message,
            )
        if event.kind != "Workload":
            return None
        evicted = event.reason.startswith(EVICTED_DUE_TO)
        what = HistoryEventKind.EVICTED if evicted else _WHAT.get(event.reason)
        if what is None:
            return None
        namespace, _, name = event.key.rpartition("/")
        workload = self._workload(event.key) or Workload(namespace=namespace, name=name)
        reason = event.reason.removeprefix(EVICTED_DUE_TO) if evicted else ""
        if what is HistoryEventKind.PREEMPTED:
            reason = rule_in(event.message) or ""
        return self._chronicler.said(what, workload, event.time, reason, event.message)


def _lately(times: Iterable[tuple[Time, str]], at: Time) -> bool:
    return any(abs(at - time) <= SAME for time, _ in times)
