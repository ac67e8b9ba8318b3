"""The line in which a filter is typed."""

from textual import on
from textual.app import ComposeResult
from textual.containers import Horizontal
from textual.widgets import Input, Static

from gpuconsole.ui.messages import FilterChanged, FilterClosed


class FilterLine(Horizontal):
    """The line at the foot of a screen in which a filter is typed; it stays while a filter is set."""

    def compose(self) -> ComposeResult:
        yield Static("/", classes="prompt", markup=False)
        yield Input(compact=True, placeholder="regex · !not · -l key=value · -f fuzzy")
        yield Static("", classes="complaint", markup=False)

    @property
    def text(self) -> str:
        return self.query_one(Input).value

    def open(self) -> None:
        """Show the line and take the keyboard."""
        self.display = True
        # At once, not with the next idle moment: fast fingers have typed the first letter by then.
        self.screen.set_focus(self.query_one(Input))

    def put(self, text: str) -> None:
        """Show a filter that came from elsewhere; the keyboard stays where it is."""
        self.display = True
        self.query_one(Input).value = text

    def close(self) -> None:
        """Forget the text and go out of sight."""
        self.query_one(Input).value = ""
        self.complain("")
        self.display = False

    def complain(self, text: str) -> None:
        """Say beside the text what is wrong with it."""
        self.query_one(".complaint", Static).update(text)

    @on(Input.Changed)
    def _changed(self, event: Input.Changed) -> None:
        event.stop()
        self.post_message(FilterChanged(event.value))

    @on(Input.Submitted)
    def _submitted(self, event: Input.Submitted) -> None:
        event.stop()
        if not event.value.strip():
            self.display = False
        self.post_message(FilterClosed())
