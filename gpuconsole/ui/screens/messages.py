"""The log of messages: what the line above the footer has shown, newest first."""

from datetime import datetime

from textual.app import ComposeResult

from gpuconsole.model.snapshot import Snapshot
from gpuconsole.ui.actions import Action
from gpuconsole.ui.messages import LoggedMessage
from gpuconsole.ui.screens.base import ConsoleScreen
from gpuconsole.ui.table_model import Column
from gpuconsole.ui.widgets.grid import Grid
from gpuconsole.ui.widgets.header_footer import SEVERITIES
from gpuconsole.ui.widgets.textpane import Paragraph

COLUMNS: tuple[Column[LoggedMessage], ...] = (
    Column(
        "TIME",
        lambda one: f"{datetime.fromtimestamp(one.at):%H:%M:%S}",
        id="age",
        width=9,
        sort=lambda one: one.at,
    ),
    Column(
        "SEVERITY",
        lambda one: ((f"{SEVERITIES[one.severity][0]} {one.severity}", SEVERITIES[one.severity][1]),),
        id="status",
        width=14,
        sort=lambda one: one.severity,
    ),
    Column("MESSAGE", lambda one: one.text, id="name", width=30, flex=1, sort=lambda one: one.text),
)


class MessagesScreen(ConsoleScreen):
    """Lists the messages of this session; the whole text of the selected one is below the table."""

    passing = True

    def body(self) -> ComposeResult:
        yield Grid(COLUMNS, key=lambda one: f"{one.at} {one.text}", empty="No messages yet.")
        yield Paragraph(id="definition")

    def show(self, snapshot: Snapshot) -> None:
        self.query_one(Grid).show(tuple(reversed(self.console_app.message_log)))

    def picked(self, row: LoggedMessage | None) -> None:
        self.query_one(Paragraph).lines = (row.text,) if row is not None else ()

    def crumb(self) -> str:
        return "messages"

    def refusal(self, action: Action) -> str:
        return ""
