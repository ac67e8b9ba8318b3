"""Adopts an existing cluster: builds running groups from its pods, and resumes work, evictions, deadlines and timers.

`create_initial_objects` starts a cluster from objects, `adopt_cluster` continues one that is observed.
`with_pod_indexes` finds the index of each pod within its job, from labels, names and the pod's own fields;
`adopt_group` counts a group's pods, and sets the timers of the work that they do.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from itertools import chain, count, islice
from operator import is_
from typing import TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from gpuconsole.model.cluster import Pod, PodPhase
from gpuconsole.model.cooperative import Steps, run_to_end
from gpuconsole.model.events import Applied, HistoryEventKind
from gpuconsole.model.job import BatchRules, CronRules, FlowRules, Job, LaunchRules, MemberRules
from gpuconsole.model.jobs.batch import count_numbers, count_pieces, finished_indexes, lacking, stands_in
from gpuconsole.model.jobs.services_and_pod_groups import LEADER, ROLE, WORKER, WORKER_INDEX
from gpuconsole.model.jobs.workloads import POD
from gpuconsole.model.objects import TABLES, Object
from gpuconsole.model.pod_template import PodSet
from gpuconsole.model.workloads import Workload
from gpuconsole.scheduling.kueue.conditions import ADMITTED
from gpuconsole.scheduling.kueue.pod_resources import reserved_at
from gpuconsole.scheduling.kueue.slices import replacement_for
from gpuconsole.scheduling.kueue.workload_controller import PODS_READY
from gpuconsole.scheduling.volcano.api.task import TASK_SPEC
from gpuconsole.scheduling.volcano.jobs.states import TASK_INDEX
from gpuconsole.sim.controllers import (
    eviction,
    job_lifecycle,
    jobs,
    object_commands,
    pods,
    reconcile,
    volcano_jobs,
    work,
    workload_controller,
    workloads,
)
from gpuconsole.sim.controllers.admission_plugins import pod_priority
from gpuconsole.sim.controllers.pod_specs import job_pods, workload_pods
from gpuconsole.sim.kernel import CreateUnsuspendedPods, PodsGone, WorkEnds
from gpuconsole.sim.world import RunningGroup, World, running_group_key

PodPlace = tuple[str, int]
"""Where a pod belongs in its job: the name of its pod set, and its index in that."""
_SET_MARKS = (
    *("jobset.sigs.k8s.io/replicatedjob-name", "training.kubeflow.org/replica-type", TASK_SPEC, ROLE),
    "ray.io/group",
)
"""Labels and annotations that name the pod set of a pod."""
FAILURES = "batch.kubernetes.io/job-index-failure-count"
"""Annotation of a pod: earlier failures of its index, of Jobs with backoffLimitPerIndex (indexed_job_utils.go)."""
_SAME_FIELDS = {"headgroup": "head"}
"""Controllers' name of a pod set → Kueue's name."""


def with_pod_indexes(
    pods: Sequence[Pod],
    pod_sets: Sequence[PodSet],
    sizes: Mapping[str, int],
    names: Mapping[str, PodPlace] = {},
    finished: Sequence[str] = (),
) -> dict[str, PodPlace]:
    """Find the pod set and the index of each pod, by pod key; no two pods have the same.

    Labels take precedence, then the job's pod names in `names`, then the pods' own fields. Others get the remaining
    indexes in the order of `pods`: first those of their pod set, which has the number of pods in `sizes`, then numbers
    above that. Indexes in `finished` (ranges such as `1,3-5`) are finished and never assigned.
    """
    known = {part.name: part for part in pod_sets}
    found: dict[str, PodPlace] = {}
    taken: set[PodPlace] = set()

    def take(pod: Pod, place: PodPlace | None) -> None:
        if place is not None and place not in taken and not (finished and stands_in(place[1], finished)):
            found[pod.key] = place
            taken.add(place)

    for pod in pods:
        place = _place_by_labels(pod, known) or names.get(pod.name)
        if place is not None and 0 <= place[1] < sizes.get(place[0], 0):
            take(pod, place)
    for pod in pods:
        if pod.key not in found:
            own = _pod_set_of(pod, known)
            take(pod, (own, pod.index) if own else None)
    left = {name: _remaining_places(name, sizes[name], finished, taken) for name in sizes}
    for pod in pods:
        if pod.key not in found:
            own = _pod_set_of(pod, known)
            places = left[own] if own in left else chain.from_iterable(left.values())
            take(pod, next(places, None) or _next_place_above(own or pod_sets[0].name, sizes, taken))
    return found


def _remaining_places(name: str, size: int, finished: Sequence[str], taken: Set[PodPlace]) -> Iterator[PodPlace]:
    return ((name, index) for index in lacking(finished, size) if (name, index) not in taken)


def _next_place_above(name: str, sizes: Mapping[str, int], taken: Set[PodPlace]) -> PodPlace:
    return next((name, index) for index in count(sizes.get(name, 0)) if (name, index) not in taken)


def labelled_index(pod: Pod, part: PodSet) -> int | None:
    """Return a pod's index in its pod set by its labels; None without such labels.

    Pods of several jobs in one pod set count from 0 in each; a leader's workers count from 1, as the leader is 0.
    """
    request = part.topology
    index = _index_label(pod, TASK_INDEX if request is None else request.index_label)
    if index is None or request is None:
        return index
    if request.index_label == WORKER_INDEX and part.name == WORKER:
        return index - 1
    if not request.subgroup_index_label or not request.subgroup_count:
        return index
    group = _index_label(pod, request.subgroup_index_label)
    return None if group is None else group * max(1, part.count // request.subgroup_count) + index


def failures_before(pod: Pod) -> int | None:
    """Return how often a pod's index had failed before the pod was created (annotation `FAILURES`); None without it."""
    return _index_label(pod, FAILURES)


def _place_by_labels(pod: Pod, pod_sets: Mapping[str, PodSet]) -> PodPlace | None:
    name = _pod_set_of(pod, pod_sets)
    index = labelled_index(pod, pod_sets[name]) if name else None
    return None if index is None else (name, index)


def _pod_set_of(pod: Pod, pod_sets: Mapping[str, PodSet]) -> str:
    """The pod set of a pod by its own field or by labels; empty if unknown."""
    if pod.pod_set in pod_sets or len(pod_sets) == 1:
        return pod.pod_set if pod.pod_set in pod_sets else next(iter(pod_sets))
    for mark in _SET_MARKS:
        value = (pod.labels.get(mark) or pod.annotations.get(mark, "")).lower()
        if _SAME_FIELDS.get(value, value) in pod_sets:
            return _SAME_FIELDS.get(value, value)
    if pod_sets.keys() >= {LEADER, WORKER} and WORKER_INDEX in pod.labels:
        return LEADER if pod.labels[WORKER_INDEX] == "0" else WORKER
    return ""


def _index_label(pod: Pod, mark: str) -> int | None:
    text = pod.labels.get(mark) or pod.annotations.get(mark, "")
    return int(text) if text.isascii() and text.isdigit() and len(text) <= 10 else None


GroupOwners: TypeAlias = tuple[Workload | None, Job | None, Job | None]
"""The Workload of a group of pods, the group's job, and the job that owns the Workload."""


class GroupCounts(Struct, frozen=True):
    """The running group built from some pods, cached while these pods and their owners are the same objects."""

    members: tuple[Pod, ...]
    owners: GroupOwners
    group: RunningGroup
    ready: tuple[Pod, ...]
    """Pods that have a node and have not ended."""
    is_complete: bool
    """True if all work of the group is done."""
    changed_objects: tuple[Object, ...]
    """Objects that building the group changed; using the cache writes them again."""

    def is_current(self, members: Sequence[Pod], owners: GroupOwners) -> bool:
        """True if the counts are of these same pods and owners."""
        same = len(self.members) == len(members) and all(map(is_, self.owners, owners))
        return same and all(map(is_, self.members, members))


def adopt_group(world: World, key: str, members: Sequence[Pod], cache: dict[str, GroupCounts]) -> None:
    """Build the running group with this key from its existing pods: count them, and set the timers of work under way.

    `cache` caches the counts by group key between calls; it is read and updated.
    """
    first = members[0]
    group = RunningGroup(key=key, workload=first.workload, job=first.job, pods=tuple(pod.key for pod in members))
    if work.is_work_done(world, group):
        return
    workload = world.workload(group.workload) if group.workload else None
    if workload is not None and workload.reserved and eviction.starts_before_old_pods_end(world, workload):
        # Pods that are older than the quota, such as those of an elastic job's earlier slice, are members, too.
        group = replace(group, created=min(reserved_at(workload, world.now), *(pod.created for pod in members)))
    job = world.job(group.job) if group.job else None
    owners = workload, job, world.job(workload.owner) if workload is not None else None
    known = cache.get(key)
    if known is not None and known.is_current(members, owners):
        for obj in known.changed_objects:
            world.put(obj)
    else:
        known = _count_group(world, group, owners, members, cache)
    world.put_group(known.group)
    _set_timers(world, known)


def _count_group(
    world: World,
    group: RunningGroup,
    owners: GroupOwners,
    members: Sequence[Pod],
    cache: dict[str, GroupCounts],
) -> GroupCounts:
    """Count a group; cached unless counting changed more than the group itself."""
    events, groups = len(world.events), len(world.groups)
    # Terminating and ended pods get the indexes that the others leave over.
    inside = sorted(members, key=lambda pod: (pod.done, bool(pod.deleted), pod.name))
    job = owners[1]
    count = _count_independent if job is not None and job.solo else _count_together
    group, ready, finished = count(world, group, job, inside)
    written = tuple(event.object for event in world.events[events:] if isinstance(event, Applied))
    made = GroupCounts(tuple(members), owners, group, ready, finished, written)
    if len(world.groups) == groups and len(written) == len(world.events) - events:
        cache[group.key] = made
    return made


def _set_timers(world: World, known: GroupCounts) -> None:
    group = known.group
    ends = [pod.finished for pod in known.members if pod.phase is PodPhase.SUCCEEDED]
    is_counted = not ends or world.policy.latencies is None
    if group.is_independent and not group.pods and not is_counted:
        reconcile.await_completion(world, group, max(ends))
    elif group.is_independent:
        for pod in known.ready:
            work.begin_pod_work(world, pod)
    elif known.is_complete:
        world.groups[group.key] = replace(group, start=world.now)
        at = world.now if is_counted else reconcile.completion_time(world, group, max(ends))
        world.kernel.set_timer(at, WorkEnds(group.key, world.now))
    elif group.running >= group.pods_needed:
        work.resume_work(world, group, max(pod.started for pod in known.ready))
    for pod in known.members:
        if pod.deleted:
            _set_deletion_timer_of(world, pod)


def set_deletion_timer(world: World, pod: Pod) -> None:
    """Set the timer that deletes a terminating pod left from an earlier start of its job."""
    if pod.gang:
        world.put(replace(pod, gang="", gang_size=0))
    _set_deletion_timer_of(world, pod)


def _set_deletion_timer_of(world: World, pod: Pod) -> None:
    due = max(world.now, pod.deleted + pods.termination_time(world, pod))
    world.kernel.set_timer(due, PodsGone(((pod.key, pod.uid),)))


def _count_independent(
    world: World, group: RunningGroup, job: Job | None, members: Sequence[Pod]
) -> tuple[RunningGroup, tuple[Pod, ...], bool]:
    """Count independent pods; finished ones are ignored."""
    existing = [pod for pod in members if not pod.done]
    if job is not None and isinstance(job.rules, BatchRules):
        existing = _pieces_of_work(world, group, job, job.rules, members, existing)
    else:
        existing = _assign_indexes(world, job, _wanted_pods(world, group), existing)
    at_work = tuple(pod for pod in existing if pod.node and not pod.deleted)
    group = replace(
        group,
        is_independent=True,
        pods=tuple(pod.key for pod in existing),
        running=len(at_work),
        terminating=sum(bool(pod.node and pod.deleted) for pod in existing),
        start=min((pod.started for pod in at_work), default=None),
    )
    return group, at_work, False


def _pieces_of_work(
    world: World, group: RunningGroup, job: Job, rules: BatchRules, members: Iterable[Pod], existing: Sequence[Pod]
) -> list[Pod]:
    """The pods of a batch/v1 Job with the pieces of work that they do.

    Succeeded pods count as completed even before the Job's controller has counted them.
    """
    workload = world.workload(group.workload) if group.workload else None
    part = job.pod_sets[0]
    total = count_pieces(rules, reconcile.parallelism_limit(job, workload))
    well = [pod for pod in members if pod.phase is PodPhase.SUCCEEDED]
    after = job
    for pod in well:
        piece = labelled_index(pod, part)
        if piece is not None and piece < total:
            after = work.with_completed_piece(after, piece)
    uncounted = len(well) - count_numbers((after.batch.completed,), total)
    for piece in list(islice(lacking(finished_indexes(after), total), max(0, uncounted))):
        after = work.with_completed_piece(after, piece)
    if rules.limit_per_index is not None:
        after = _with_index_failures(after, rules, members)
    if after.batch != job.batch:
        world.put(after)
    return _store_indexes(
        world,
        existing,
        with_pod_indexes(existing, job.pod_sets, {part.name: total}, finished=finished_indexes(after)),
    )


def _with_index_failures(job: Job, rules: BatchRules, members: Iterable[Pod]) -> Job:
    """The job with the failures of each of its indexes, which only its pods show."""
    failures = dict(job.batch.failures)
    ignores = any(rule.action == "Ignore" for rule in rules.failure_rules)
    for pod in members:
        piece, before = labelled_index(pod, job.pod_sets[0]), failures_before(pod)
        if piece is not None and before is not None:
            times = before + (pod.phase is PodPhase.FAILED and not ignores)
            failures[str(piece)] = max(times, failures.get(str(piece), 0))
    return replace(job, batch=replace(job.batch, failures={piece: n for piece, n in failures.items() if n}))


def _count_together(
    world: World, group: RunningGroup, job: Job | None, members: Sequence[Pod]
) -> tuple[RunningGroup, tuple[Pod, ...], bool]:
    """Count pods that work together, each at its index among the wanted pods."""
    wanted = _wanted_pods(world, group)
    others = {(pod.pod_set, pod.index): pod for pod in _assign_indexes(world, job, wanted, members)}
    mine = [others.pop((pod.pod_set, pod.index), None) for pod in wanted]
    spare = [pod for pod in others.values() if not wanted or not (pod.done or pod.deleted)]
    for pod in others.values():
        if wanted and pod.deleted and not pod.done:
            _detach(world, pod)
    existing = [pod for pod in (*mine, *spare) if pod is not None]
    well = [pod for pod in existing if pod.phase is PodPhase.SUCCEEDED] if _may_end_early(job) else []
    group = replace(
        group,
        pods=tuple(pod.key for pod in (*(found or want for found, want in zip(mine, wanted, strict=True)), *spare)),
        pods_needed=max(1, _pods_needed(group, job, len(wanted) or len(existing)) - len(well)),
        running=sum(bool(pod.node) and not pod.deleted and not pod.done for pod in existing),
        terminating=sum(bool(pod.node and pod.deleted) and not pod.done for pod in existing),
        missing=mine.count(None) + sum(pod.done for pod in existing) - len(well),
        ended=len(well),
    )
    ready = tuple(pod for pod in existing if pod.node and not pod.done)
    return group, ready, bool(wanted) and _is_complete(job, mine)


def _may_end_early(job: Job | None) -> bool:
    """True if succeeded pods are not recreated while others work; Volcano's controller counts its own pods."""
    return job is None or (job.volcano is None and not job.endless)


def _pods_needed(group: RunningGroup, job: Job | None, wanted: int) -> int:
    """The number of pods that must run before work can begin."""
    return (job.min_available if job is not None and not group.workload else None) or wanted


def _is_complete(job: Job | None, members: Sequence[Pod | None]) -> bool:
    """True if all pods succeeded, or all those that decide how their job ends."""
    if not _may_end_early(job):
        return False
    deciders = job.rules.deciders if job is not None and isinstance(job.rules, LaunchRules) else ()
    decide = [pod for pod in members if pod is not None and pod.pod_set in deciders] if deciders else members
    return bool(decide) and all(pod is not None and pod.phase is PodPhase.SUCCEEDED for pod in decide)


def _detach(world: World, pod: Pod) -> None:
    """Detach a terminating pod whose index another pod has."""
    alone = replace(pod, workload="", job="", gang="", gang_size=0)
    world.put(alone)
    world.put_group(RunningGroup(key=running_group_key(alone), pods=(alone.key,), terminating=int(bool(alone.node))))


def _assign_indexes(world: World, job: Job | None, wanted: Sequence[Pod], members: Sequence[Pod]) -> list[Pod]:
    """The pods, each with its own index: wanted pods first."""
    if not wanted:
        return list(members)
    parts = job.pod_sets if job is not None else ()
    sizes = dict(Counter(pod.pod_set for pod in wanted))
    pod_sets = [next((part for part in parts if part.name == name), PodSet(name=name)) for name in sizes]
    return _store_indexes(
        world,
        members,
        with_pod_indexes(members, pod_sets, sizes, {pod.name: (pod.pod_set, pod.index) for pod in wanted}),
    )


def _store_indexes(world: World, members: Sequence[Pod], places: Mapping[str, PodPlace]) -> list[Pod]:
    """Store the index of each pod."""
    known = []
    for pod in members:
        pod_set, index = places[pod.key]
        if (pod.pod_set, pod.index) != (pod_set, index):
            pod = replace(pod, pod_set=pod_set, index=index)
            world.put(pod)
        known.append(pod)
    return known


def _wanted_pods(world: World, group: RunningGroup) -> tuple[Pod, ...]:
    workload = world.workload(group.workload) if group.workload else None
    if workload is not None:
        return workload_pods(world, workload)
    job = world.job(group.job) if group.job else None
    return job_pods(world, job) if job is not None else ()


GROUPS_PER_STEP = 200
"""Groups of pods adopted per step, which takes some milliseconds."""
MOST_OWNERS = 8
"""Maximum levels of owner references to follow; they come from outside, and may be cyclic."""


def create_initial_objects(world: World, objects: Iterable[Object]) -> None:
    """Create the objects of a new cluster; objects with a status keep it."""
    order = {kind: place for place, kind in enumerate(TABLES)}
    everything = sorted(objects, key=lambda obj: order[type(obj)])
    known = _owners(everything)
    for obj in everything:
        if not isinstance(obj, (Job, Workload, Pod)):
            world.put(obj)
    workload_controller.refresh_active_checks(world)
    for queue in list(world.state.table("local_queues").all()):
        jobs.ensure_namespace(world, queue.namespace)
    fresh = []
    for obj in everything:
        if isinstance(obj, (Job, Workload, Pod)):
            if _has_started(obj) or obj.key in known:
                world.put(obj)
            else:
                fresh.append(obj)
    run_to_end(adopt_cluster(world, {}))
    record_obstacles(world)
    for obj in fresh:
        refusal = object_commands.create_object(world, obj)
        if refusal:
            world.record_event(HistoryEventKind.COMMAND_REFUSED, reason="Submit", message=str(refusal))


def adopt_cluster(world: World, cache: dict[str, GroupCounts]) -> Steps[None]:
    """Build the running groups and timers of all pods, and create missing objects; `cache` as for `adopt_group`."""
    _complete_pods(world)
    job_lifecycle.resume_deadlines(world)
    yield
    grouped: dict[str, list[Pod]] = {}
    for pod in list(world.state.table("pods").all()):
        if _is_from_earlier_start(world, pod):
            set_deletion_timer(world, pod)
        else:
            grouped.setdefault(running_group_key(pod), []).append(pod)
    for number, (key, members) in enumerate(grouped.items(), start=1):
        adopt_group(world, key, members, cache)
        if number % GROUPS_PER_STEP == 0:
            yield
    for key in cache.keys() - grouped.keys():
        del cache[key]
    for workload in [one for one in world.state.table("workloads").all() if one.reserved and not one.finished]:
        _continue_workload(world, workload)
    yield
    owned = {workload.owner for workload in world.state.table("workloads").all()}
    active = owned | {_creator_of(world, group.job) for group in world.groups.values()}
    for job in list(world.state.table("jobs").all()):
        if job.volcano is None:
            _continue_job(world, job, active)
        elif not job.ended and job.key not in owned:
            volcano_jobs.start_job(world, job)


def record_obstacles(world: World) -> None:
    """Record in each pending workload why Kueue does not try it, such as a stopped queue, if there is a reason."""
    for workload in list(world.state.table("workloads").all()):
        workloads.record_obstacle(world, workload)


def _complete_pods(world: World) -> None:
    """Fill in unknown fields of pods: Workload, priority, GPUs, MIG instances.

    A bound pod without a start time starts now.
    """
    owned = {workload.owner: workload.key for workload in world.state.table("workloads").all() if workload.owner}
    for pod in list(world.state.table("pods").all()):
        job = _job_of(world, pod)
        workload = pod.workload
        if world.workload(workload) is None:
            workload = owned.get(job) or ("" if pod.gates else owned.get(f"{POD}/{pod.key}", ""))
        priority = pod.priority or pod_priority(world, pod.template)
        gpus = pod.gpus or world.placement.gpus_of(pod.key)
        slices = pod.slices or world.placement.mig_instances_of(pod.key)
        starts = bool(pod.node and not pod.done and not pod.started and not pod.deleted)
        value = (pod.job, pod.workload, pod.priority, pod.gpus, pod.slices)
        if starts or value != (job, workload, priority, gpus, slices):
            full = replace(pod, job=job, workload=workload, priority=priority, gpus=gpus, slices=slices)
            world.put(replace(full, started=world.now, phase=PodPhase.RUNNING) if starts else full)


def only_adds_unknown_facts(found: Object, obj: Object) -> bool:
    """True if `obj` differs from the observed object `found` only by facts that the simulation filled in.

    These are fields and the start of a pod, or the PodsReady condition of a Workload.
    """
    match found, obj:
        case Pod(), Pod():
            full = replace(
                found,
                workload=obj.workload,
                priority=obj.priority,
                gpus=obj.gpus,
                slices=obj.slices,
                pod_set=obj.pod_set,
                index=obj.index,
            )
            if not found.started and obj.phase is PodPhase.RUNNING:
                full = replace(full, started=obj.started, phase=obj.phase)
            return full == obj
        case Workload(), Workload():
            others = (tuple(one for one in of.conditions if one.type != PODS_READY) for of in (found, obj))
            same = len({*others}) == 1 and replace(found, conditions=obj.conditions) == obj
            return same and obj.is_true(PODS_READY)
        case _:
            return False


def _job_of(world: World, pod: Pod) -> str:
    """The job of a pod; a Deployment's ReplicaSet, named with a hash, resolves to the Deployment."""
    kind, _, rest = pod.job.partition("/")
    deployment = f"Deployment/{rest.rpartition('-')[0]}" if kind == "ReplicaSet" else ""
    return deployment if deployment and world.job(deployment) is not None else _creator_of(world, pod.job)


def _creator_of(world: World, key: str) -> str:
    """The job whose controller created this one: the RayJob of a RayCluster, the TrainJob of a JobSet.

    Jobs of a CronJob or a JobFlow, and parts that Kueue admits separately, are jobs of their own.
    """
    for _ in range(MOST_OWNERS):
        job = world.job(key)
        owner = world.job(job.owner) if job is not None and not isinstance(job.rules, MemberRules) else None
        if owner is None or isinstance(owner.rules, CronRules | FlowRules):
            break
        key = owner.key
    return key


def _owners(objects: Iterable[Object]) -> set[str]:
    """Jobs that own a Workload or pods in the input."""
    keys: set[str] = set()
    for obj in objects:
        match obj:
            case Workload(owner=owner) if owner:
                keys.add(owner)
            case Pod(job=job) if job:
                keys.add(job)
            case _:
                pass
    return keys


def _has_started(obj: Job | Workload | Pod) -> bool:
    match obj:
        case Job():
            return obj.ended
        case Workload():
            return bool(obj.conditions)
        case Pod():
            return bool(obj.node or obj.done or obj.workload or obj.job)


def _is_from_earlier_start(world: World, pod: Pod) -> bool:
    """True for a terminating pod whose job restarts without waiting for it."""
    workload = world.workload(pod.workload) if pod.deleted and pod.workload else None
    if workload is None or workload.finished or not eviction.starts_before_old_pods_end(world, workload):
        return False
    if replacement_for(workload) is not None:
        return False  # It reserved quota while pods of the slice that it replaces ran.
    return not workload.reserved or pod.created < reserved_at(workload, world.now)


def _continue_workload(world: World, workload: Workload) -> None:
    """Resume a workload that has quota; an admitted one without pods gets them."""
    if workload.admitted and workload.condition(PODS_READY) is None:
        # Whether its pods were ready before is unknown: they get the recovery timeout.
        workload = workloads.with_pods_not_ready(workloads.with_pods_ready(workload, world.now), world.now)
        world.put(workload)
    workloads.set_requeue_timer(world, workload)
    if workload.is_true("Evicted"):
        eviction.resume_eviction(world, workload)
    elif workload.admitted and workload.key not in world.groups:
        _await_pods(world, workload)


def _await_pods(world: World, workload: Workload) -> None:
    """Create the pods of an admitted workload that has none yet, when its job's controller would."""
    admitted = workload.condition(ADMITTED)
    if admitted is None or world.policy.latencies is None:
        workloads.unsuspend_job(world, workload)
        return
    names = (workload.key, workload.uid)
    at = world.draw_due_time(admitted.since, "job_unsuspend", "pod_creation", of=names)
    world.kernel.set_timer(at, CreateUnsuspendedPods(workload.key, admitted.since))


def _continue_job(world: World, job: Job, active: set[str]) -> None:
    """Start a job that has neither a Workload nor pods; `active` are the jobs that have them."""
    if job.ended or job.key in active or _creator_of(world, job.key) != job.key:
        return
    if jobs.is_job_creator(world, job):
        world.creators_to_reconcile[job.key] = None
        jobs.set_cron_timer(world, job)
        return
    if jobs.is_managed(world, job):
        jobs.create_workload_of_job(world, job)
    elif not job.suspended:
        jobs.start_unmanaged(world, job)
