"""The scheduling decision for a pod as a table: results of every filter and score for every node."""

from msgspec import Struct


class ScoreColumn(Struct, frozen=True):
    """A plugin that scores nodes, and its weight; for KAI its score band, the most that it gives."""

    plugin: str
    weight: int
    skipped: bool = False
    """True if the plugin does not apply to the pod."""


class FilterColumn(Struct, frozen=True):
    """A plugin that filters nodes."""

    plugin: str
    skipped: bool = False


class NodeScore(Struct, frozen=True):
    """Result of one plugin for one node."""

    raw: int
    normalised: int
    """kube-scheduler: 0 to 100. KAI: percentage of the plugin's score band. Volcano: the raw score."""
    weighted: int
    """What the total sums up. kube-scheduler and Volcano: the normalised score times the weight, for Volcano in
    hundredths. KAI: the raw score in hundredths.
    """


class NodeRow(Struct, frozen=True, kw_only=True):
    """Filter and score results of one node."""

    node: str
    verdicts: tuple[str, ...]
    """Reason of each filter of the table that refuses the node; empty where it passes."""
    scores: tuple[NodeScore, ...] = ()
    """One per scoring plugin of the table; none if the node is refused or was not sampled."""
    total: int = 0
    sampled: bool = True
    """False if the search ended before this node: enough others had been found."""
    chosen: bool = False

    @property
    def fits(self) -> bool:
        return not any(self.verdicts)

    @property
    def refusal(self) -> str:
        """Reason of the first filter that refuses the node, which the scheduler's message counts; empty if it fits."""
        return next((verdict for verdict in self.verdicts if verdict), "")


class ScoreTable(Struct, frozen=True, kw_only=True):
    """Filter and score results of all nodes for one pod, as if it were scheduled now.

    A running pod is evaluated as if it had not been placed.
    """

    pod: str
    scheduler: str
    filters: tuple[FilterColumn, ...]
    plugins: tuple[ScoreColumn, ...]
    rows: tuple[NodeRow, ...]
    """All nodes; in the order of the search, for KAI by rank with the nodes that do not fit last."""
    tie: tuple[str, ...] = ()
    """The other nodes that rank the same as the chosen one, in order; kube-scheduler picks among them at random."""
    message: str = ""
    """Why no node fits, as in the scheduler's event; empty if a node is chosen."""

    @property
    def chosen(self) -> str:
        """The node that the pod would get; empty if none fits."""
        return next((row.node for row in self.rows if row.chosen), "")
