"""Laws of admission on random clusters."""

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from gpuconsole.model.events import Preempt, Refuse
from gpuconsole.model.queues import (
    BorrowWithinCohort,
    ClusterQueue,
    Cohort,
    FlavorFungibility,
    Fungibility,
    PreemptionPolicy,
    QueueingStrategy,
    Quota,
)
from gpuconsole.model.workloads import Workload
from gpuconsole.scheduling.kueue.config import KueueConfig
from gpuconsole.scheduling.kueue.nomination import compute_nomination
from gpuconsole.scheduling.kueue.pod_resources import WorkloadRequest
from gpuconsole.scheduling.kueue.session import KueueSession
from tests.support.kueue_cluster import ANY, GPU, LOWER, NEVER, World, cohort, pods, queue, workload

LIMITS = st.one_of(st.none(), st.integers(0, 6))
NAMES = ("q0", "q1", "q2", "q3")
FLAVORS = ("f", "g")

quotas = st.builds(Quota, st.integers(0, 6), LIMITS, LIMITS)
queues = st.builds(
    lambda name, f, g, where, strategy, within, reclaim, borrow, fungibility: queue(
        name,
        {"f": f, "g": g} if where else {"f": Quota(f.nominal), "g": Quota(g.nominal)},
        cohort=where,
        strategy=strategy,
        within=within,
        reclaim=reclaim,
        borrow=BorrowWithinCohort(borrow if reclaim != NEVER else NEVER),
        fungibility=fungibility,
    ),
    st.just(""),
    quotas,
    quotas,
    st.sampled_from(("", "r", "x")),
    st.sampled_from(QueueingStrategy),
    st.sampled_from(PreemptionPolicy),
    st.sampled_from((NEVER, LOWER, ANY)),
    st.sampled_from((NEVER, LOWER)),
    st.builds(FlavorFungibility, st.sampled_from(Fungibility), st.sampled_from(Fungibility)),
)


def named(name: str, drawn: ClusterQueue) -> ClusterQueue:
    return ClusterQueue(**{f: getattr(drawn, f) for f in drawn.__struct_fields__} | {"name": name})


clusters = st.tuples(
    st.integers(0, 6).map(lambda own: (cohort("r", own), cohort("x", parent="r"))),
    st.tuples(*(queues.map(lambda q, name=name: named(name, q)) for name in NAMES)),  # type: ignore[misc]
    st.builds(lambda fair: KueueConfig(fair_sharing=fair), st.booleans()),
)


def arrival(number: int, where: str, count: int, gpus: int, priority: int, partial: bool) -> Workload:
    pod_sets = (pods(count, gpus, least=1 if partial else None),)
    return workload(f"w{number:02d}", where, priority=priority, created=number // 2, pod_sets=pod_sets)


arrivals = st.lists(
    st.tuples(st.sampled_from(NAMES), st.integers(1, 4), st.integers(1, 3), st.integers(-1, 1), st.booleans()),
    min_size=1,
    max_size=14,
).map(lambda drawn: tuple(arrival(number, *facts) for number, facts in enumerate(drawn)))
alike = st.lists(st.tuples(st.sampled_from(NAMES[:2]), st.integers(2, 3)), min_size=8, max_size=20).map(
    lambda drawn: tuple(arrival(number, where, 1, gpus, 0, False) for number, (where, gpus) in enumerate(drawn))
)
"""So few shapes that many of one stand in a queue."""
Cluster = tuple[tuple[Cohort, Cohort], tuple[ClusterQueue, ...], KueueConfig]
quick = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def build(cluster: Cluster) -> World:
    cohorts, queue_list, config = cluster
    return World(*cohorts, *queue_list, config=config, flavors=FLAVORS)


def excess(session: KueueSession) -> list[int]:
    """By how much each root uses more than its quota, per flavor."""
    usage = session.usage_tree
    roots = [n for n, parent in enumerate(usage.tree.parent) if parent < 0]
    return [-usage.available(node, column) for node in roots for column in range(usage.tree.width)]


@quick
@given(clusters, arrivals)
def test_no_admission_lifts_a_root_above_its_quota(cluster: Cluster, work: tuple[Workload, ...]) -> None:
    world = build(cluster)
    for one in work:
        world.apply(one)
        world.cycle()
        assert max(excess(world.session)) <= 0


@quick
@given(clusters, arrivals)
def test_the_books_are_those_of_a_session_built_from_the_workloads(
    cluster: Cluster, work: tuple[Workload, ...]
) -> None:
    world = build(cluster)
    for n, one in enumerate(work):
        world.apply(one)
        world.cycle()
        if n % 4 == 3 and world.running:
            world.finish(min(world.running))
    rebuilt = build(cluster)
    rebuilt.apply(*world.workloads.values())
    assert rebuilt.session.usage_tree.usage == world.session.usage_tree.usage
    for name in NAMES:
        waiting = {p.workload.name for p in world.session.pending_workloads(name)}
        assert waiting == {p.workload.name for p in rebuilt.session.pending_workloads(name)}


@quick
@given(clusters, arrivals)
def test_the_same_input_gives_the_same_decisions(cluster: Cluster, work: tuple[Workload, ...]) -> None:
    world, other = build(cluster), build(cluster)
    for one in work:
        world.apply(one)
        other.apply(one)
        assert world.cycle() == other.cycle()


@quick
@given(clusters, arrivals, arrivals)
def test_a_fork_is_independent_and_decides_alike(
    cluster: Cluster, before: tuple[Workload, ...], after: tuple[Workload, ...]
) -> None:
    world = build(cluster)
    for one in before:
        world.apply(one)
        world.cycle()
    twin = world.session.fork()
    third = twin.fork()
    decided = []
    for n in range(3):
        world.now += 1_000_000
        decided.append(world.session.run_cycle(world.now))
        if n == 0:
            world.apply(*after)
    assert twin.run_cycle(world.now - 2_000_000) == decided[0]
    assert third.run_cycle(world.now - 2_000_000) == decided[0]
    assert twin.usage_tree.usage == third.usage_tree.usage


@quick
@given(clusters, arrivals)
def test_looking_for_flavors_and_victims_leaves_the_books_as_they_are(
    cluster: Cluster, work: tuple[Workload, ...]
) -> None:
    world = build(cluster)
    for one in work:
        world.apply(one)
        world.cycle()
    state = world.session._state
    context = state.context()
    before = context.snapshot.usage.usage[:]
    for name in NAMES:
        for waiting in world.session.pending_workloads(name):
            request = state.workload_index.get(waiting.workload.key)
            assert isinstance(request, WorkloadRequest)
            first = compute_nomination(context, state.setup.queues[name], request)
            again = compute_nomination(context, state.setup.queues[name], request)
            assert context.snapshot.usage.usage == before
            assert [target.holding.key for target in first[1]] == [target.holding.key for target in again[1]]
            assert first[0].message == again[0].message


@quick
@given(clusters, arrivals)
def test_a_gate_for_words_changes_nothing_but_words(cluster: Cluster, work: tuple[Workload, ...]) -> None:
    cohorts, queue_list, config = cluster
    worded = replace(config, gates={"UnadmittedWorkloadsObservability": True})
    world, other = build(cluster), build((cohorts, queue_list, worded))
    for one in work:
        world.apply(one)
        other.apply(one)
        plain = [replace(d, reason="") if isinstance(d, Refuse) else d for d in world.cycle()]
        assert plain == [replace(d, reason="") if isinstance(d, Refuse) else d for d in other.cycle()]


@quick
@given(clusters, arrivals)
def test_victims_are_of_a_lower_priority_or_use_what_is_not_theirs(
    cluster: Cluster, work: tuple[Workload, ...]
) -> None:
    """Within a queue only LowerPriority and its like preempt; nobody is chosen twice, or by itself."""
    world = build(cluster)
    policies = {queue.name: queue.preemption for queue in cluster[1]}
    for one in work:
        world.apply(one)
        queues = {name: workload.cluster_queue for name, workload in world.workloads.items()}
        victims = [d for d in world.cycle() if isinstance(d, Preempt)]
        assert len({d.workload for d in victims}) == len(victims)
        for decision in victims:
            victim, by = (key.removeprefix("team/") for key in (decision.workload, decision.by))
            mine, theirs = world.workloads[by].queue, queues[victim]
            assert victim != by
            within, reclaim = policies[mine].within_cluster_queue, policies[mine].reclaim_within_cohort
            assert (within if mine == theirs else reclaim) is not NEVER
            lower = world.workloads[victim].priority < world.workloads[by].priority
            assert lower or (within if mine == theirs else reclaim) is not LOWER


@quick
@given(clusters, arrivals)
def test_everybody_who_waits_is_in_exactly_one_place(cluster: Cluster, work: tuple[Workload, ...]) -> None:
    world = build(cluster)
    for one in work:
        world.apply(one)
        world.cycle()
        found = [p.workload.name for name in NAMES for p in world.session.pending_workloads(name)]
        assert sorted(found) == sorted(set(world.workloads) - world.running)


@quick
@given(clusters, alike, st.lists(st.booleans(), min_size=20, max_size=20))
def test_who_is_parked_and_came_or_changed_is_named_in_a_fork_too(
    cluster: Cluster, work: tuple[Workload, ...], looks: list[bool]
) -> None:
    world = build(cluster)
    named: dict[str, Workload] = {}
    for n, (one, look) in enumerate(zip(work, looks, strict=False)):
        world.apply(one)
        if look:
            world.cycle()
        if n % 4 == 3 and world.running:
            world.finish(min(world.running))
        twin = world.session.fork()
        news = world.session.newly_inadmissible()
        parked = {p.workload.key for name in NAMES for p in world.session.pending_workloads(name) if p.inadmissible}
        due = {key for key in parked if named.get(key) is not world.workloads[key.removeprefix("team/")]}
        assert due <= set(news) <= parked
        assert sorted(twin.newly_inadmissible()) == sorted(set(news)) == sorted(news)
        assert not world.session.newly_inadmissible()
        named.update((key, world.workloads[key.removeprefix("team/")]) for key in news)


@quick
@given(clusters, arrivals)
def test_available_is_what_a_workload_can_get(cluster: Cluster, work: tuple[Workload, ...]) -> None:
    """One more GPU than available is never admitted; what is available is, by a head that nobody competes with."""
    world = build(cluster)
    for one in work:
        world.apply(one)
        world.cycle()
    for name in list(world.workloads):
        if name not in world.running:
            world.session.delete("workloads", f"team/{name}", world.now)
    room = world.session.available("q0", "f", GPU)
    if room:
        world.apply(workload("probe", "q0", room, priority=-9))
        decisions = world.cycle()
        preempting = any(isinstance(decision, Preempt) and decision.by == "team/probe" for decision in decisions)
        # MayStopSearch takes a flavor for which others have to go before one that fits only by borrowing.
        stops = cluster[1][0].fungibility.when_can_preempt is Fungibility.MAY_STOP_SEARCH
        assert "probe" in world.running or (stops and preempting)
