"""The filter line."""

from textual import on
from textual.widgets import Input, Static

from gpuconsole.ui.messages import FilterChanged, FilterClosed
from gpuconsole.ui.widgets.prompt_line import PromptLine


class FilterLine(PromptLine):
    """The filter input at the bottom of a screen; it stays while a filter is set."""

    def fields(self) -> tuple[Static | Input, ...]:
        return (
            Static("/", classes="prompt", markup=False),
            Input(compact=True, placeholder="regex · !not · -l key=value · -f fuzzy · -w word"),
            Static("", classes="complaint", markup=False),
        )

    def open(self) -> None:
        """Show the line and focus it."""
        self.take_keyboard()

    def put(self, text: str) -> None:
        """Show a filter that was set elsewhere; the focus stays where it is."""
        self.display = True
        self.field.value = text

    def close(self) -> None:
        """Clear the text and hide the line."""
        if self.opened:
            self.field.value = ""
            self.complain("")
        self.display = False

    def complain(self, text: str) -> None:
        """Show an error beside the text."""
        if self.opened:
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
