"""Results of commands that were not carried out."""

Refusal = str
"""Why a command was refused, and what to do instead; empty if it was carried out."""

DONE: Refusal = ""


class NoChange(Refusal):
    """A command whose requested state is the current one; the text names that state."""
