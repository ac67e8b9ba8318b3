"""State that autoscalers keep between two scans. Mutates; forked and saved with the simulation."""

from msgspec import Struct, field
from msgspec.structs import replace

from gpuconsole.model.clock import Span, Time
from gpuconsole.model.cluster import Pod


class DisruptionOrder(Struct, frozen=True):
    """A disruption under way: nodes that are drained as soon as their replacement is ready."""

    reason: str
    nodes: tuple[str, ...]
    replacements: tuple[str, ...] = ()


class Proposal(Struct, frozen=True):
    """A consolidation that is validated again before it is carried out."""

    method: str
    nodes: tuple[str, ...]
    due: Time


class GroupBackoff(Struct, frozen=True):
    """The backoff of a node group after a failed scale-up, doubled at each failure."""

    until: Time
    span: Span


class AutoscalerState(Struct, kw_only=True):
    """State of the autoscalers of one cluster."""

    stirred: bool = False
    """Pods or nodes have changed since the last reaction."""
    waiting: dict[str, Time] = field(default_factory=dict)
    """Unschedulable pods, and since when."""
    moved: dict[str, Time] = field(default_factory=dict)
    """Node → when a pod was last bound to it, ended or was deleted there."""
    look: Time | None = None
    """Time of the next provisioning or scan, if a timer is set for it."""
    poll: Time | None = None
    """Time of Karpenter's next disruption round, if a timer is set for it."""
    batch: Time | None = None
    """Start of the current batch of pods (Karpenter)."""
    batched: tuple[str, ...] = ()
    """Pods that belong to the last batch or the current one."""
    draining: dict[str, None] = field(default_factory=dict)
    """Nodes whose pods are evicted."""
    orders: list[DisruptionOrder] = field(default_factory=list)
    proposal: Proposal | None = None
    shunned: dict[str, Time] = field(default_factory=dict)
    """Offering → time before which it is not tried again."""
    unneeded: dict[str, Time] = field(default_factory=dict)
    """Unneeded nodes, and since when (Cluster Autoscaler)."""
    unremovable: dict[str, Time] = field(default_factory=dict)
    """Nodes that cannot be removed, and when that is checked again (Cluster Autoscaler)."""
    backoffs: dict[str, GroupBackoff] = field(default_factory=dict)
    added: Time | None = None
    failed: Time | None = None
    """When a group last grew (`added`), and when that last failed (Cluster Autoscaler)."""
    interrupted: dict[str, Time] = field(default_factory=dict)
    """Spot nodes with an interruption notice, and when they are gone."""
    fallen: dict[str, None] = field(default_factory=dict)
    """Critical workloads that have lost a spot node."""
    hushed: dict[str, Time] = field(default_factory=dict)
    """Node → time before which the reason why it is not consolidated is not recorded again."""
    said: dict[str, str] = field(default_factory=dict)
    """Node, pod or pool → the message recorded last, which is not repeated."""

    def see(self, pod: Pod, now: Time) -> None:
        """Note that a pod was created or changed."""
        waits = not (pod.node or pod.deleted or pod.done or pod.gates or pod.nominated_node)
        if waits and pod.reason == "Unschedulable":
            if pod.key not in self.waiting:
                self.waiting[pod.key] = now
                self.stirred = True
        elif self.waiting.pop(pod.key, None) is not None:
            self.stirred = True
        if pod.node:
            self.stirred = True
            if now in (pod.bound, pod.finished) or pod.deleted >= now:
                self.moved[pod.node] = now

    def forget_node(self, node: str) -> None:
        """Remove a deleted node."""
        for table in (self.moved, self.unneeded, self.unremovable, self.draining, self.said, self.hushed):
            table.pop(node, None)
        self.stirred = True

    def fork(self) -> "AutoscalerState":
        """Return an equal, independent copy."""
        return replace(
            self,
            waiting=self.waiting.copy(),
            moved=self.moved.copy(),
            draining=self.draining.copy(),
            orders=self.orders.copy(),
            shunned=self.shunned.copy(),
            unneeded=self.unneeded.copy(),
            unremovable=self.unremovable.copy(),
            backoffs=self.backoffs.copy(),
            interrupted=self.interrupted.copy(),
            fallen=self.fallen.copy(),
            hushed=self.hushed.copy(),
            said=self.said.copy(),
        )
