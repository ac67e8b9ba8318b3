"""Lint: finds errors and likely mistakes in the combination of manifests. Pure."""

from gpuconsole.insight.linting import buying, fitting, kai, naming, quotas, scheduler
from gpuconsole.insight.linting.facts import Engines, Facts
from gpuconsole.insight.linting.findings import Finding, Level

__all__ = ["Engines", "Facts", "Finding", "Level", "lint"]

_CHECKS = (scheduler.lint, naming.lint, quotas.lint, fitting.lint, kai.lint, buying.lint)
_ORDER = {level: number for number, level in enumerate(Level)}


def lint(facts: Facts) -> tuple[Finding, ...]:
    """All findings, the most severe first, then by object and code."""
    found = (finding for check in _CHECKS for finding in check(facts))
    return tuple(sorted(found, key=lambda one: (_ORDER[one.level], one.object, one.code, one.problem)))
