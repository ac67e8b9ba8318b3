"""A search for victims with its story: who else was considered, who could not be, and how the shares stood."""

from collections.abc import Iterator, Sequence
from heapq import nsmallest

from gpuconsole.model.choices import Choice, Considered, Verdict
from gpuconsole.model.queues import PreemptionPolicy
from gpuconsole.scheduling.kueue.fairness import share
from gpuconsole.scheduling.kueue.preemption.oracle import find_targets
from gpuconsole.scheduling.kueue.preemption.policy import allows, considered_in_order
from gpuconsole.scheduling.kueue.preemption.search import Search, Target
from gpuconsole.scheduling.kueue.preemption.weighing import written
from gpuconsole.scheduling.kueue.requests import Holding, Request
from gpuconsole.scheduling.kueue.stories import Stories, Story, Told

MOST = 24
"""So many of those considered are told; victims always are."""


def find_and_tell(search: Search, stories: Stories) -> Sequence[Target]:
    """What `find_targets` finds; how it was found is added to the stories."""
    search.story = story = Story()
    targets = find_targets(search)
    if targets:
        stories.setdefault(search.request.id, []).append(_told(search, story, targets))
    return targets


def choice_of(stories: Stories, request: Request, targets: Sequence[Target], victim: Holding) -> Choice | None:
    """How a victim was chosen: the last search of the preemptor that ended with just these victims."""
    victims = _ids(targets)
    for told in reversed(stories.get(request.id, ())):
        if told.victims == victims:
            return Choice(
                share=told.shares[victim.cluster_queue],
                by_share=told.by_share,
                considered=told.considered,
                left_out=told.left_out,
            )
    return None


def _ids(targets: Sequence[Target]) -> frozenset[int]:
    return frozenset(target.holding.id for target in targets if target.rule is not None)


def _told(search: Search, story: Story, targets: Sequence[Target]) -> Told:
    usage = search.usage
    found = [_considered(holding, verdict) for holding, verdict in story.verdicts.values()]
    chosen = sum(one.verdict is Verdict.CHOSEN for one in found)
    room = max(0, MOST - chosen)
    ruled_out = list(_ruled_out(search, story))
    # There may be ten thousand of them, and only a few are told.
    first = nsmallest(room, ruled_out, key=lambda one: considered_in_order(search, one[0]))
    found += [_considered(holding, verdict) for holding, verdict in first]
    told: list[Considered] = []
    for one in found:
        if one.verdict is Verdict.CHOSEN:
            told.append(one)
        elif room:
            told.append(one)
            room -= 1
    queues = {target.holding.cluster_queue for target in targets}
    return Told(
        victims=_ids(targets),
        by_share=written(share(usage, search.rules.node)),
        shares={queue: written(share(usage, usage.tree.queues[queue])) for queue in queues},
        considered=tuple(told),
        left_out=len(story.verdicts) + len(ruled_out) - len(told),
    )


def _considered(holding: Holding, verdict: Verdict) -> Considered:
    return Considered(holding.key, holding.cluster_queue, verdict, holding.priority)


def _ruled_out(search: Search, story: Story) -> Iterator[tuple[Holding, Verdict]]:
    """The workloads of the tree that use what is short, and were no candidates."""
    tree, context = search.usage.tree, search.context
    for node in tree.subtree_queues(tree.root(search.rules.node)):
        queue = tree.names[node]
        for holding in context.held_by(queue):
            known = holding.id in story.verdicts or holding.id in context.away
            if not known and not search.columns.isdisjoint(holding.columns):
                yield holding, _why_not(search, node, holding)


def _why_not(search: Search, node: int, holding: Holding) -> Verdict:
    preemption = search.rules.queue.preemption
    own = node == search.rules.node
    policy = preemption.within_cluster_queue if own else preemption.reclaim_within_cohort
    if policy == PreemptionPolicy.NEVER:
        return Verdict.POLICY_NEVER
    if not allows(search, policy)(holding):
        return Verdict.PRIORITY
    return Verdict.NOT_BORROWING
