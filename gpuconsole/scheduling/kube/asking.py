"""What one pod asks of pods anywhere: the plugins that look beyond a node, prepared for it."""

from msgspec import Struct

from gpuconsole.scheduling.kube.census import Census
from gpuconsole.scheduling.kube.means import Means
from gpuconsole.scheduling.kube.nodes import NodeState
from gpuconsole.scheduling.kube.plugins import MEETINGS, WISHES
from gpuconsole.scheduling.kube.plugins.roles import Asker, Concern, Refusal, Trouble, Wish
from gpuconsole.scheduling.kube.profile import NODE_PORTS, Profile
from gpuconsole.scheduling.kube.units import Waiter


class Asking(Struct, frozen=True):
    """Filters and scores by name, in the profile's order; those that the pod does not need are left out."""

    priority: int = 0
    trouble: str = ""
    """Why no node will do, whatever is on it; nothing else is looked at then."""
    concerns: tuple[tuple[str, Concern], ...] = ()
    wishes: tuple[tuple[str, int, Wish], ...] = ()
    """(plugin, weight, score)."""

    @property
    def silent(self) -> bool:
        return not (self.trouble or self.concerns or self.wishes)

    def refusal(self, state: NodeState, *, early: bool = False) -> Refusal | None:
        """Why the node is refused, by the first filter that does so; None if it is not.

        `early` asks only filters that come before that of the node's resources.
        """
        for name, concern in self.concerns:
            if early and name != NODE_PORTS:
                break
            found = judge(concern, state, self.priority)
            if found is not None:
                return found
        return None

    def without(self, state: NodeState, left: NodeState) -> Refusal | None:
        """The same with only the pods of `left` on the node."""
        assert state.node is not None
        gone = [seat.who for key, seat in state.seats.items() if key not in left.seats and seat.who is not None]
        for _, concern in self.concerns:
            found = judge(concern.moved(state.node, gone, -1), left, self.priority)
            if found is not None:
                return found
        return None


NOTHING = Asking()


def judge(concern: Concern, state: NodeState, priority: int) -> Refusal | None:
    """Ask one filter about a node: with the pods there that it is reserved for, and without (nominated pods)."""
    assert state.node is not None
    to_come = [held.who for held in state.reserved if held.priority >= priority and held.who is not None]
    if to_come:
        found = concern.moved(state.node, to_come, 1).refusal(state.node)
        if found is not None:
            return found
    return concern.refusal(state.node)


def ask(rules: Profile, waiter: Waiter, around: Census, means: Means) -> Asking:
    """Prepare the profile's plugins for a pod."""
    assert waiter.who is not None
    asker = Asker(waiter.who, waiter.shape, means)
    concerns: list[tuple[str, Concern]] = []
    for name in rules.filters:
        found = MEETINGS[name](rules, asker, around) if name in MEETINGS else None
        if isinstance(found, Trouble):
            return Asking(waiter.priority, trouble=found.text)
        if found is not None:
            concerns.append((name, found))
    wishes = ((name, weight, WISHES[name](rules, asker, around)) for name, weight in rules.scores if name in WISHES)
    return Asking(
        waiter.priority,
        concerns=tuple(concerns),
        wishes=tuple((name, weight, wish) for name, weight, wish in wishes if wish is not None),
    )
