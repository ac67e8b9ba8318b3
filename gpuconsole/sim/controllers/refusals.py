"""How an order says that it was not carried out."""

Refusal = str
"""Why, and what would have been right; empty if the order was carried out."""

DONE: Refusal = ""


class NoChange(Refusal):
    """Nothing was done, as what was asked for is so already: it says what is."""
