"""What Kueue's engine says of work where nothing else holds anything: what it refuses there, it never admits."""

import msgspec
from msgspec.structs import replace

from gpuconsole.insight.blockers import blocker
from gpuconsole.insight.codes import Code
from gpuconsole.insight.linting.facts import Facts, Work
from gpuconsole.insight.unblock.trial import examined
from gpuconsole.model.cluster import Namespace, Node, Pod
from gpuconsole.model.workloads import Job, Workload
from gpuconsole.scheduling.kueue.config import KueueConfig
from gpuconsole.scheduling.kueue.session import Session
from gpuconsole.sim.rehearsal import Rehearsal

FOR_GOOD = (Code.EXCEEDS_MAX, Code.QUOTA, Code.FLAVOR_MISMATCH, Code.TOPOLOGY)
"""What waiting for others does not help against, where there are no others."""
Refusal = tuple[Code, str]


class Emptied:
    """The queues and nodes, all nodes in order, and no work but the one that is asked about. Mutates nothing."""

    def __init__(self, facts: Facts) -> None:
        self._cluster = Rehearsal(Session(facts.engines.kueue or KueueConfig()), 0)
        self._topologies = bool(facts.all_nodes)
        """Where more nodes may come, or nobody knows any, these domains are not all that there will be."""
        self._known: dict[tuple[str, bytes], Refusal | None] = {}
        # Manifests hardly ever hold the namespaces that they are for.
        for name in sorted({work.namespace for work in facts.work}):
            self._cluster.apply(Namespace(name=name))
        for thing in facts.snapshot.objects():
            match thing:
                case Workload() | Job() | Pod():
                    pass
                case Node():
                    self._cluster.apply(replace(thing, ready=True, unschedulable=False))
                case _:
                    self._cluster.apply(thing)
        # Compiles what was applied, once for all forks.
        self._cluster.wake()

    def refusal(self, work: Work) -> Refusal | None:
        """Why Kueue would never admit it, as a code and in Kueue's words; None if it would, or leaves it open."""
        key = f"{work.namespace}/{work.queue}", msgspec.msgpack.encode(work.pod_sets)
        if key not in self._known:
            self._known[key] = self._asked(work)
        return self._known[key]

    def _asked(self, work: Work) -> Refusal | None:
        alone = Workload(
            namespace=work.namespace, name="asked", uid="asked", queue=work.queue, created=0, pod_sets=work.pod_sets
        )
        cluster = self._cluster.fork()
        cluster.apply(alone)
        entry = examined(cluster, alone.key)
        code = blocker(entry) if entry is not None else None
        if entry is None or code not in FOR_GOOD or (code is Code.TOPOLOGY and not self._topologies):
            return None
        return code, entry.message
