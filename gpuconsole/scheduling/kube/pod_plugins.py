"""Plugins that match pods anywhere, prepared for one pod."""

from msgspec import Struct

from gpuconsole.scheduling.kube.claims_and_volumes import ClaimsAndVolumes
from gpuconsole.scheduling.kube.nodes import NodeState
from gpuconsole.scheduling.kube.pending import PendingPod
from gpuconsole.scheduling.kube.plugins import MEETINGS, WISHES
from gpuconsole.scheduling.kube.plugins.roles import (
    NodeRejection,
    PodContext,
    PreFilterRejection,
    PreFilterState,
    PreScoreState,
)
from gpuconsole.scheduling.kube.pod_index import PodIndex
from gpuconsole.scheduling.kube.profile import NODE_PORTS, SchedulerProfile


class PodContextPlugins(Struct, frozen=True):
    """Filters and scores by name, in the profile's order, without those that do not apply to the pod."""

    priority: int = 0
    trouble: str = ""
    """Why a plugin's PreFilter rejects the pod for all nodes; the fields below are then empty."""
    concerns: tuple[tuple[str, PreFilterState], ...] = ()
    """(plugin, filter state)."""
    wishes: tuple[tuple[str, int, PreScoreState], ...] = ()
    """(plugin, weight, score state)."""

    @property
    def silent(self) -> bool:
        """True if no plugin applies to the pod."""
        return not (self.trouble or self.concerns or self.wishes)

    def refusal(self, state: NodeState, *, early: bool = False) -> NodeRejection | None:
        """Why the node is rejected, by the first filter that does so; None if it is not.

        `early` runs only filters that precede NodeResourcesFit.
        """
        for name, concern in self.concerns:
            if early and name != NODE_PORTS:
                break
            found = judge(concern, state, self.priority)
            if found is not None:
                return found
        return None

    def without(self, state: NodeState, left: NodeState) -> NodeRejection | None:
        """Why the node is rejected if only the pods of `left` stay on it; None if it is not."""
        assert state.node is not None
        gone = [seat.who for key, seat in state.seats.items() if key not in left.seats and seat.who is not None]
        for _, concern in self.concerns:
            found = judge(concern.moved(state.node, gone, -1), left, self.priority)
            if found is not None:
                return found
        return None


NOTHING = PodContextPlugins()


def judge(concern: PreFilterState, state: NodeState, priority: int) -> NodeRejection | None:
    """Run one filter for a node twice: with nominated pods of at least this priority on it, and without."""
    assert state.node is not None
    to_come = [held.who for held in state.reserved if held.priority >= priority and held.who is not None]
    if to_come:
        found = concern.moved(state.node, to_come, 1).refusal(state.node)
        if found is not None:
            return found
    return concern.refusal(state.node)


def prefilter(
    rules: SchedulerProfile, waiter: PendingPod, around: PodIndex, means: ClaimsAndVolumes
) -> PodContextPlugins:
    """Prepare the profile's plugins for a pod."""
    assert waiter.who is not None
    asker = PodContext(waiter.who, waiter.shape, means)
    concerns: list[tuple[str, PreFilterState]] = []
    for name in rules.filters:
        found = MEETINGS[name](rules, asker, around) if name in MEETINGS else None
        if isinstance(found, PreFilterRejection):
            return PodContextPlugins(waiter.priority, trouble=found.text)
        if found is not None:
            concerns.append((name, found))
    wishes = ((name, weight, WISHES[name](rules, asker, around)) for name, weight in rules.scores if name in WISHES)
    return PodContextPlugins(
        waiter.priority,
        concerns=tuple(concerns),
        wishes=tuple((name, weight, wish) for name, weight, wish in wishes if wish is not None),
    )
