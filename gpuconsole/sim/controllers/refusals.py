"""Results of commands that were not carried out."""

Refusal = str
"""Why, and what would have been right; empty if the order was carried out."""

DONE: Refusal = ""


class NoChange(Refusal):
    """A command whose requested state is the current one; the text names that state."""
