"""Fit errors: a code and reasons per node, and a histogram over all nodes."""

from collections import Counter
from collections.abc import Iterable, Mapping
from enum import IntEnum

from msgspec import Struct

POD_NUMBER_EXCEEDED = "node(s) pod number exceeded"

UNSCHEDULABLE_REASON = "Unschedulable"
"""Reason of the pod's condition while it cannot be placed."""
SCHEDULABLE_REASON = "Schedulable"
"""Reason of the pod's condition when it is pending only because of its gang."""


class PredicateCode(IntEnum):
    """Result code of a predicate."""

    SUCCESS = 0
    ERROR = 1
    UNSCHEDULABLE = 2
    """Evicting others may help."""
    UNRESOLVABLE = 3
    """Evicting others changes nothing (UnschedulableAndUnresolvable)."""
    WAIT = 4
    SKIP = 5


class PredicateStatus(Struct, frozen=True):
    """One plugin's result for a task on a node."""

    code: PredicateCode
    reason: str = ""
    plugin: str = ""


class FitError(Struct, frozen=True):
    """Why a task does not fit on one node."""

    statuses: tuple[PredicateStatus, ...]
    task: str = ""
    """`namespace/name`."""
    node: str = ""

    @classmethod
    def saying(cls, code: PredicateCode, *reasons: str, plugin: str = "") -> "FitError":
        """An error of one code with a status for each reason."""
        return cls(tuple(PredicateStatus(code, reason, plugin) for reason in reasons))

    @property
    def reasons(self) -> list[str]:
        return [status.reason for status in self.statuses if status.reason]

    @property
    def text(self) -> str:
        """The error in one line, as Volcano writes it."""
        return f"task {self.task} on node {self.node} fit failed: {', '.join(self.reasons)}"

    def has(self, *codes: PredicateCode) -> bool:
        """True if any plugin ended with one of the codes."""
        return any(status.code in codes for status in self.statuses)

    @property
    def unresolvable(self) -> bool:
        """True if no eviction can resolve the error."""
        return self.has(PredicateCode.UNRESOLVABLE)


class FitErrors:
    """Why a task fits on none of the nodes. Mutates by `put`."""

    __slots__ = ("hyper_node", "nodes", "text")

    def __init__(self, text: str = "", hyper_node: str = "") -> None:
        self.nodes: dict[str, FitError] = {}
        self.text = text
        """Replaces `0/N nodes are unavailable`."""
        self.hyper_node = hyper_node
        """The domain that was searched."""

    def put(self, node: str, error: FitError) -> None:
        """Set the error of a node."""
        self.nodes[node] = error

    def unresolvable_nodes(self) -> set[str]:
        """Nodes on which preemption cannot help."""
        return {name for name, error in self.nodes.items() if error.unresolvable}

    def __str__(self) -> str:
        """`0/4 nodes are unavailable: 1 reason a, 3 reason b.`"""
        text = self.text or f"0/{len(self.nodes)} nodes are unavailable"
        if not self.nodes:
            return text
        reasons = Counter(reason for error in self.nodes.values() for reason in error.reasons)
        message = f"{text}: {histogram(reasons)}."
        return f"In hyperNode {self.hyper_node}: {message}" if self.hyper_node else message


def histogram(reasons: Mapping[str, int]) -> str:
    """`1 reason a, 3 reason b`, sorted as texts."""
    return ", ".join(sorted(f"{count} {reason}" for reason, count in reasons.items()))


def insufficient(resources: Iterable[str]) -> str:
    """`Insufficient cpu` for the first of the resources; empty for none."""
    first = next(iter(resources), "")
    return f"Insufficient {first}" if first else ""
