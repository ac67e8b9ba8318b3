"""A form of one-line fields for the keyboard: ↑/↓ and tab move, ←/→ change a choice, enter opens its list."""

from collections.abc import Sequence
from typing import ClassVar

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, VerticalScroll
from textual.content import Content
from textual.message import Message
from textual.widgets import Input, Select, Static

from gpuconsole.model.text import clean
from gpuconsole.ui.textual_patches import ChoiceOverlay, SelectCurrent

Choices = Sequence[tuple[str, str]]
"""The options of a choice in list order, each as (value, shown text)."""


class Picker(Select[str], inherit_bindings=False):
    """A form control that lets the operator choose from a list; its texts are never parsed as markup."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter,space", "show_overlay", "Open the list", show=False),
        Binding("left", "turn(-1)", "Choose the previous option", show=False),
        Binding("right", "turn(1)", "Choose the next option", show=False),
    ]

    def __init__(self, choices: Choices, value: str, *, id: str | None = None) -> None:
        self.choices = list(choices) or [("", "–")]
        values = [choice for choice, _ in self.choices]
        chosen = value if value in values else values[0]
        super().__init__(_options(self.choices), value=chosen, allow_blank=False, compact=True, id=id)

    def compose(self) -> ComposeResult:
        yield SelectCurrent(self.prompt)
        yield ChoiceOverlay().data_bind(compact=Select.compact)

    @property
    def chosen(self) -> str:
        return self.value if isinstance(self.value, str) else ""

    def offer(self, choices: Choices, value: str | None = None) -> None:
        """Replace the options; `value` is chosen, or else the option chosen before, if it still exists."""
        choices = list(choices) or [("", "–")]
        if choices == self.choices and value in (None, self.chosen):
            return
        wanted = self.chosen if value is None else value
        self.choices = choices
        with self.prevent(Select.Changed):
            self.set_options(_options(choices))
        if wanted in [choice for choice, _ in choices]:
            self.value = wanted
        self._show_chosen()

    def _show_chosen(self) -> None:
        # Select draws the text of its choice anew only where the value changes, and here the texts do.
        words = dict(self.choices).get(self.chosen, "")
        for shown in self.query(SelectCurrent):
            shown.update(_text(words))

    def action_turn(self, way: int) -> None:
        """Choose the next (`way` 1) or previous (-1) option."""
        values = [choice for choice, _ in self.choices]
        position = values.index(self.chosen) if self.chosen in values else 0
        self.value = values[(position + way) % len(values)]


def _options(choices: Choices) -> list[tuple[Text, str]]:
    # Text, because Select looks through Text (and str, which would be markup) when a person types to search.
    return [(_text(words), value) for value, words in choices]


def _text(words: str) -> Text:
    return Text(clean(words), no_wrap=True, overflow="ellipsis")


class FormInput(Input):
    """A one-line text or number."""

    def __init__(
        self, value: str, *, number: bool = False, limit: int = 63, empty: str = "", id: str | None = None
    ) -> None:
        """`empty` is the placeholder for no text."""
        super().__init__(
            clean(value),
            type="integer" if number else "text",
            max_length=limit,
            placeholder=empty,
            compact=True,
            id=id,
            select_on_focus=True,
        )


class FormField(Horizontal):
    """A field of a form: label, control, and room for an error."""

    DEFAULT_CSS = """
    FormField { height: 1; }
    FormField > .field--label { width: 13; color: $text-muted; }
    FormField.-focused > .field--label { color: $accent; text-style: bold; }
    FormField > FormInput { width: 1fr; }
    FormField > Picker { width: 1fr; height: 1; }
    FormField > .field--problem { width: auto; max-width: 50%; height: 1; color: $text-error; padding: 0 0 0 1; }
    """

    def __init__(self, label: str, control: FormInput | Picker) -> None:
        super().__init__()
        self._label = label
        self.control = control
        self._problem = Static("", classes="field--problem", markup=False)

    def compose(self) -> ComposeResult:
        yield Static(self._label, classes="field--label", markup=False)
        yield self.control
        yield self._problem

    # Textual 8.2 styles a label anew on `:focus-within` only where a rule is for the field itself.
    def on_descendant_focus(self) -> None:
        self.add_class("-focused")

    def on_descendant_blur(self) -> None:
        self.remove_class("-focused")

    def rename(self, label: str) -> None:
        """Change the label."""
        self._label = label
        for shown in self.query(".field--label").results(Static):
            shown.update(label)

    def complain(self, problem: str) -> None:
        """Show an error in the value; an empty text clears it."""
        self._problem.update(Content(f"✖ {clean(problem)}" if problem else ""))


class Form(VerticalScroll):
    """A form of fields one below the other. Posts `Changed` whenever a value changes, with all values by field id."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up", "step(-1)", "Field above", show=False),
        Binding("down", "step(1)", "Field below", show=False),
    ]
    DEFAULT_CSS = """
    Form { height: auto; padding: 0 1; }
    """

    class Changed(Message):
        """A value changed."""

        def __init__(self, form: "Form", field: str) -> None:
            super().__init__()
            self.form = form
            self.field = field

    def __init__(self, fields: Sequence[FormField], *, id: str | None = None) -> None:
        super().__init__(id=id, can_focus=False)
        self.fields = {field.control.id or "": field for field in fields}

    def compose(self) -> ComposeResult:
        yield from self.fields.values()

    @property
    def values(self) -> dict[str, str]:
        """The value of each visible field."""
        return {name: _value(field.control) for name, field in self.fields.items() if field.display}

    def put(self, name: str, value: str) -> None:
        """Set the value of the field with the id `name`."""
        control = self.fields[name].control
        if isinstance(control, Picker):
            control.offer(control.choices, value)
        else:
            control.value = clean(value)

    def picker(self, name: str) -> Picker:
        control = self.fields[name].control
        if not isinstance(control, Picker):
            raise TypeError(f"field {name} is not a choice")
        return control

    def complain(self, problems: dict[str, str]) -> None:
        """Show the errors in `problems`, by field id, and clear those of the other fields."""
        for name, field in self.fields.items():
            field.complain(problems.get(name, ""))

    def action_step(self, way: int) -> None:
        """Move the focus to the field above or below."""
        controls = [field.control for field in self.fields.values() if field.display]
        focused = [position for position, control in enumerate(controls) if control.has_focus]
        position = (focused[0] if focused else 0) + way
        if 0 <= position < len(controls):
            controls[position].focus()
        elif way > 0:
            self.screen.focus_next()
        else:
            self.screen.focus_previous()

    def on_input_changed(self, event: Input.Changed) -> None:
        event.stop()
        self.post_message(self.Changed(self, event.input.id or ""))

    def on_input_submitted(self, event: Input.Submitted) -> None:
        event.stop()
        self.action_step(1)

    def on_select_changed(self, event: Select.Changed) -> None:
        event.stop()
        self.post_message(self.Changed(self, event.select.id or ""))


def _value(control: FormInput | Picker) -> str:
    return control.chosen if isinstance(control, Picker) else control.value
