"""Lint: finds errors and likely mistakes in the combination of manifests. Pure."""

from gpuconsole.insight.linting.facts import LintEngines, LintFacts, LintFinding, LintLevel
from gpuconsole.insight.linting.kueue import lint_fitting, lint_provisioning, lint_quotas
from gpuconsole.insight.linting.schedulers import lint_kai, lint_names, lint_scheduler

__all__ = ["LintEngines", "LintFacts", "LintFinding", "LintLevel", "lint"]

_CHECKS = (lint_scheduler, lint_names, lint_quotas, lint_fitting, lint_kai, lint_provisioning)
_ORDER = {level: number for number, level in enumerate(LintLevel)}


def lint(facts: LintFacts) -> tuple[LintFinding, ...]:
    """All findings, the most severe first, then by object and code."""
    found = (finding for check in _CHECKS for finding in check(facts))
    return tuple(sorted(found, key=lambda one: (_ORDER[one.level], one.object, one.code, one.problem)))
