"""Missing RBAC permissions of a live cluster, and what could not be read for other reasons."""

from textual.app import ComposeResult

from gpuconsole.model.snapshot import Snapshot
from gpuconsole.services.status import ClusterHealth, Missing
from gpuconsole.ui.columns import Column
from gpuconsole.ui.screens.base import ConsoleScreen
from gpuconsole.ui.widgets.grid import Grid

UNREAD = "unread"


def lacking(sight: ClusterHealth | None) -> list[Missing]:
    """Missing permissions, then sentences about what is permitted but could not be read, as resources."""
    if sight is None:
        return []
    return [*sight.missing, *(Missing(UNREAD, sentence) for sentence in sight.unread)]


def _where(right: Missing) -> str:
    if right.verb == UNREAD:
        return ""
    return right.namespace or "the whole cluster"


COLUMNS: tuple[Column[Missing], ...] = (
    Column(
        "MISSING VERB", lambda right: ((right.verb, "fault"),), id="status", width=12, sort=lambda right: right.verb
    ),
    Column("RESOURCE", lambda right: right.resource, id="name", width=30, flex=3, sort=lambda right: right.resource),
    Column("NAMESPACE", _where, width=18, flex=1, sort=_where),
)


class RightsScreen(ConsoleScreen):
    """Table of all missing permissions; the header shows how many kinds can be read."""

    def body(self) -> ComposeResult:
        yield Grid(COLUMNS, key=str, empty="No missing permissions.")

    def crumb(self) -> str:
        return "permissions"

    def show(self, snapshot: Snapshot) -> None:
        self.query_one(Grid).show(lacking(self.console.status.sight))
