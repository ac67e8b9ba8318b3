"""Shortens names for people: `research/rlhf` for the Workload `research/job-rlhf-04066` that Kueue named so."""

import re
from functools import lru_cache

from gpuconsole.model.jobs.workloads import GROUPS, HASH

_KINDS = "|".join(sorted((kind.lower() for kind in GROUPS), key=len, reverse=True))
_OWNED = re.compile(rf"(?P<space>[^/]*/)?(?:{_KINDS})-(?P<job>.+)-[0-9a-f]{{{HASH}}}")
_INSIDE = re.compile(rf"(?<![\w./-])(?:[a-z0-9-]+/)?(?:{_KINDS})-[a-z0-9.-]+?-[0-9a-f]{{{HASH}}}(?![\w/-])")


@lru_cache(maxsize=65_536)
def called(key: str) -> str:
    """Replace the name that Kueue generated in a workload's key by the name of its job; other keys are unchanged."""
    found = _OWNED.fullmatch(key)
    return f"{found['space'] or ''}{found['job']}" if found is not None else key


def named(text: str) -> str:
    """Replace workload names that Kueue generated in a text by the names of their jobs, as `called` does."""
    return _INSIDE.sub(lambda found: called(found[0]), text)
