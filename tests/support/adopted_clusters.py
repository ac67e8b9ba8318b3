"""Clusters that no simulation began: what a live one shows, and says of its pods."""

from collections.abc import Mapping

from msgspec.structs import replace

from gpuconsole.model.cluster import Pod, PodPhase
from gpuconsole.model.events import Applied
from gpuconsole.model.job import Job, MemberRules
from gpuconsole.model.jobs.workloads import LWS_GROUP
from gpuconsole.model.labels import NO_LABELS
from gpuconsole.model.objects import Object
from gpuconsole.model.snapshot import Snapshot
from gpuconsole.model.state import ClusterState
from gpuconsole.model.workloads import Workload
from gpuconsole.sim.engine import Simulation
from tests.support.sim_cluster import START, nodes

FIXED = ("StatefulSet", "LeaderWorkerSet", "PyTorchJob", "MPIJob", "VolcanoJob", "Pod", "PodGroup")
"""Kinds whose pods have the same names in every cluster; others get a random suffix."""


def as_live(simulation: Simulation) -> Snapshot:
    """What a live cluster with these objects shows: nothing that only a simulation knows."""
    snapshot = simulation.snapshot()
    state = ClusterState(snapshot.time)
    for thing in snapshot.objects():
        for shown in _shown(thing, snapshot):
            state.apply(Applied(snapshot.time, shown))
    return state.freeze()


def _shown(thing: Object, snapshot: Snapshot) -> tuple[Object, ...]:
    match thing:
        case Job(rules=MemberRules()):
            return ()
        case Workload(owner=owner) if owner.startswith(LWS_GROUP):
            return (replace(thing, owner="LeaderWorkerSet/red/j"),)
        case Pod(job=key):
            job = snapshot.jobs.get(key)
            key = job.owner if job is not None and isinstance(job.rules, MemberRules) else key
            fixed = key.partition("/")[0] in FIXED
            name = thing.name if fixed else f"{thing.name}-{thing.uid[:5]}"
            bare = replace(thing, name=name, job=key, pod_set="", index=0, gang="", gang_size=0, gpus=())
            return (bare,)
        case _:
            return (thing,)


def shown(*things: Object) -> Snapshot:
    """A cluster of two nodes, as a live one shows it."""
    state = ClusterState(START)
    for thing in (*nodes(2), *things):
        state.apply(Applied(START, thing))
    return state.freeze()


def member(
    job: Object,
    name: str,
    *,
    phase: PodPhase = PodPhase.RUNNING,
    deleted: bool = False,
    labels: Mapping[str, str] = NO_LABELS,
) -> Pod:
    """A pod of a job on a node, of which a live cluster says only this."""
    assert isinstance(job, Job)
    return Pod(
        namespace="red",
        name=name,
        uid=name,
        labels=labels,
        job=job.key,
        template=job.pod_sets[0].template,
        node="n1",
        phase=phase,
        started=START,
        deleted=START if deleted else 0,
    )
