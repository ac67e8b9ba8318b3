"""Text from outside never reaches a terminal as it came."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuconsole.model.text import MAX_MESSAGE, REPLACEMENT, clean

HOSTILE = {
    "plain text is left alone": ("llm-ft ● 4 GPUs", "llm-ft ● 4 GPUs"),
    "markup is only text here": ("[red]x[/red] [/oops]", "[red]x[/red] [/oops]"),
    "an escape sequence cannot rename the terminal": ("A\x1b]0;pwned\x1b\\", f"A{REPLACEMENT}]0;pwned{REPLACEMENT}\\"),
    "a C1 control character": ("a\x9b31m", f"a{REPLACEMENT}31m"),
    "a bidirectional override": ("a\u202eb", f"a{REPLACEMENT}b"),
    "a line break in a name": ("a\nb", f"a{REPLACEMENT}b"),
    "a zero-width space": ("a\u200bb", f"a{REPLACEMENT}b"),
}


@pytest.mark.parametrize(("text", "want"), HOSTILE.values(), ids=HOSTILE)
def test_text_is_cleaned(text: str, want: str) -> None:
    assert clean(text) == want


@given(st.text(max_size=200))
def test_cleaned_text_is_printable_and_cleaning_twice_changes_nothing(text: str) -> None:
    assert clean(text).isprintable()
    assert clean(clean(text)) == clean(text)


def test_a_long_text_is_cut_and_says_so() -> None:
    assert clean("x" * 10_000_000) == "x" * (MAX_MESSAGE - 1) + "…"
