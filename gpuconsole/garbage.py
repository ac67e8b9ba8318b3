"""How seldom garbage is looked for: facts are frozen and acyclic, so that next to nothing is found."""

import gc


def collect_seldom() -> None:
    """Let the collector look at what is new, and hardly ever at all that there is.

    A full collection of a big cluster takes half a second. What stands now is left out of collections for good.
    """
    gc.freeze()
    gc.set_threshold(2_000, 10, 1_000)
