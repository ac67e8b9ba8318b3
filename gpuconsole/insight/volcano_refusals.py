"""Volcano Jobs that Volcano refuses: their queue does not exist or is not open, or pods cannot be created."""

from gpuconsole.insight.explanation import PendingExplanation
from gpuconsole.insight.pending_reasons import PendingReason
from gpuconsole.insight.shortage import Remedy
from gpuconsole.model.events import HistoryEventKind
from gpuconsole.model.job import Job
from gpuconsole.model.snapshot import Snapshot
from gpuconsole.model.volcano import VolcanoQueue
from gpuconsole.scheduling.queue_names import VOLCANO_DEFAULT

OPEN = "Open"


def refused(snapshot: Snapshot, job: Job, queue: str = "") -> PendingExplanation | None:
    """Explain why a job gets no pods whatever capacity is free; None if it only waits. `queue` is its PodGroup's."""
    if job.volcano is None:
        return None
    name = queue or job.volcano.queue or VOLCANO_DEFAULT
    found = snapshot.volcano_queues.get(name)
    if found is None and name != VOLCANO_DEFAULT and snapshot.seen.all_of(VolcanoQueue):
        remedy = Remedy(True, f"create queue {name}, or use another one")
        return _refusal(job, PendingReason.QUEUE_MISSING, f"Queue {name} does not exist.", remedy)
    if found is not None and found.state != OPEN:
        headline = f"Queue {name} is {found.state}: it accepts no new jobs."
        return _refusal(
            job, PendingReason.QUEUE_STOPPED, headline, Remedy(True, f"open queue {name}, or use another one")
        )
    said = next((line for line in reversed(snapshot.recent) if line.workload == job.key), None)
    if said is not None and said.what is HistoryEventKind.PENDING and said.message:
        # The controller reports this for a job, never for its pods: it could not create the pods.
        headline = f"Its pods cannot be created: {said.message}"
        return _refusal(job, PendingReason.INVALID, headline)
    return None


def _refusal(job: Job, code: PendingReason, headline: str, *remedies: Remedy) -> PendingExplanation:
    return PendingExplanation(subject=job.key, code=code, headline=headline, since=job.created, remedies=remedies)
