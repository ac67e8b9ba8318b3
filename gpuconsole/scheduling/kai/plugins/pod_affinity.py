"""Required pod affinity and anti-affinity, as kube-scheduler has them, over the pods of a session."""

from collections.abc import Iterator

from gpuconsole.scheduling.kai.api.nodes import NodeState
from gpuconsole.scheduling.kai.api.tasks import Neighbourhood, Task
from gpuconsole.scheduling.kai.session import Session

NO_NEIGHBOUR = "node(s) didn't match pod affinity rules"
BAD_NEIGHBOUR = "node(s) didn't match pod anti-affinity rules"
UNWANTED = "node(s) didn't satisfy existing pods anti-affinity rules"


def neighbour_trouble(session: Session, task: Task, node: NodeState) -> str:
    """Why the pods around the node keep the task away; empty if they do not."""
    if not session.affine:
        return ""
    if not all(_near(session, task, node, term) for term in task.spec.near) and not _first_of_its_kind(session, task):
        return NO_NEIGHBOUR
    if any(_near(session, task, node, term) for term in task.spec.apart):
        return BAD_NEIGHBOUR
    for other, seat in seated(session, task):
        for term in other.spec.apart:
            value = node.node.labels.get(term.topology_key)
            same = value is not None and seat.node.labels.get(term.topology_key) == value
            if same and selects(term, other, task):
                return UNWANTED
    return ""


def _near(session: Session, task: Task, node: NodeState, term: Neighbourhood) -> bool:
    """True if a pod that the term selects sits in the node's domain."""
    value = node.node.labels.get(term.topology_key)
    if value is None:
        return False
    return any(
        seat.node.labels.get(term.topology_key) == value and selects(term, task, other)
        for other, seat in seated(session, task)
    )


def _first_of_its_kind(session: Session, task: Task) -> bool:
    """True if no pod anywhere matches, and the task matches its own terms: a group of pods must begin somewhere."""
    if not all(selects(term, task, task) for term in task.spec.near):
        return False
    return not any(selects(term, task, other) for other, _ in seated(session, task) for term in task.spec.near)


def selects(term: Neighbourhood, owner: Task, other: Task) -> bool:
    namespaces = term.namespaces or (owner.namespace,)
    return other.namespace in namespaces and term.selector.matches(other.spec.labels)


def seated(session: Session, task: Task) -> Iterator[tuple[Task, NodeState]]:
    for node in session.nodes.values():
        for other in node.tasks.values():
            if other.uid != task.uid:
                yield other, node
