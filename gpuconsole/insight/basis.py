"""What of that which decides is not seen: where anything lacks, what the engine makes of the rest says nothing."""

from gpuconsole.model.cluster import Namespace, Node, Pod
from gpuconsole.model.labels import LabelSelector
from gpuconsole.model.queues import AdmissionCheck, ClusterQueue, Cohort, LocalQueue, ResourceFlavor, Topology
from gpuconsole.model.snapshot import Snapshot
from gpuconsole.model.workloads import Workload

QUOTA = (Workload, ClusterQueue, Cohort)
"""Who holds how much of what there is."""
PLACES = (Node, Pod)
"""Who has which GPUs."""


def undecidable(snapshot: Snapshot) -> tuple[str, ...]:
    """Why nobody here can say what Kueue decides next, by what is missing; nothing where all of that is seen."""
    seen = snapshot.seen
    if not seen.gaps:
        return ()
    queues, flavors = snapshot.cluster_queues, snapshot.flavors
    wanted: list[type] = [Workload, ClusterQueue, LocalQueue, ResourceFlavor]
    if any(queue.cohort for queue in queues.all()):
        wanted.append(Cohort)
    if any(queue.checks for queue in queues.all()):
        wanted.append(AdmissionCheck)
    if any(flavor.topology for flavor in flavors.all()):
        wanted += [Topology, *PLACES]
    if any(queue.namespace_selector not in (None, LabelSelector()) for queue in queues.all()):
        wanted.append(Namespace)
    return seen.lacking(*wanted)


def not_known(lacking: tuple[str, ...]) -> str:
    """The end of a sentence on what nobody here can know."""
    return f"not known: {'; '.join(lacking)}"
