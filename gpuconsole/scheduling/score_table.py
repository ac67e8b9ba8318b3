"""The scheduling decision for a pod as a table: results of every filter and score for every node."""

from msgspec import Struct


class ScoreColumn(Struct, frozen=True):
    """A plugin that scores nodes, and how much its score counts."""

    plugin: str
    weight: int
    skipped: bool = False
    """The pod asks for nothing that it looks at, so it is left out."""


class FilterColumn(Struct, frozen=True):
    """A plugin that refuses nodes."""

    plugin: str
    skipped: bool = False


class NodeScore(Struct, frozen=True):
    """Result of one plugin for one node."""

    raw: int
    normalised: int
    """0 to 100."""
    weighted: int
    """What counts: the normalised score times the plugin's weight."""


class NodeRow(Struct, frozen=True, kw_only=True):
    """Filter and score results of one node."""

    node: str
    verdicts: tuple[str, ...]
    """The reason of each filter that refuses it, empty where one lets it pass; as many as the table has filters."""
    scores: tuple[NodeScore, ...] = ()
    """As many as the table has plugins; none if the node is refused or was not looked at."""
    total: int = 0
    sampled: bool = True
    """False if the search ended before this node: enough others had been found."""
    chosen: bool = False

    @property
    def fits(self) -> bool:
        return not any(self.verdicts)

    @property
    def refusal(self) -> str:
        """Reason of the first filter that refuses the node; the one that the scheduler's message counts."""
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
    """In the order of the search; the first of equals is chosen."""
    tie: tuple[str, ...] = ()
    """The other nodes with as high a total, in order: kube-scheduler would draw one of them at random."""
    message: str = ""
    """Why it fits nowhere, as FailedScheduling says it; empty if a node is chosen."""

    @property
    def chosen(self) -> str:
        """The node that the pod would get; empty if none fits."""
        return next((row.node for row in self.rows if row.chosen), "")
