"""Description of a ClusterQueue; on a live cluster with Prometheus also Kueue's metrics beside our counts."""

from gpuconsole.insight.index.queues import QueueMetrics, counted
from gpuconsole.model.snapshot import Snapshot
from gpuconsole.ui.describing.objects import describe
from gpuconsole.ui.paint import Painted
from gpuconsole.ui.queue_metrics_text import metrics_lines
from gpuconsole.ui.screens.snapshot_worker import SnapshotWorker
from gpuconsole.ui.screens.text import TextScreen


class QueueDescription(TextScreen):
    """Describes a ClusterQueue; Kueue's metrics are queried while the screen is active."""

    def __init__(self, queue: str) -> None:
        super().__init__(f"describe {queue}", self._described, copied=queue)
        self._queue = queue
        self._metrics = QueueMetrics(queue=queue)
        self._asking: SnapshotWorker[QueueMetrics] = SnapshotWorker(self, self._ask, self._show_metrics, reads=True)

    def show(self, snapshot: Snapshot) -> None:
        super().show(snapshot)
        if self.console.foresees:
            self._asking.ask(snapshot)

    def _ask(self, _: Snapshot) -> QueueMetrics:
        return self.console.queue_metrics(self._queue)

    def _show_metrics(self, metrics: QueueMetrics) -> None:
        if metrics is not self._metrics:
            self._metrics = metrics
            super().show(self.console.snapshot)

    def _described(self, snapshot: Snapshot) -> list[Painted] | None:
        lines = describe(snapshot, "cluster_queues", self._queue)
        if lines is None:
            return None
        return [*lines, *metrics_lines(self._metrics, list(counted(self._metrics, snapshot)), snapshot.time)]
