"""Lint: finds errors and likely mistakes in the combination of manifests. Pure."""

from gpuconsole.insight.linting import quotas
from gpuconsole.insight.linting import schedulers as kai
from gpuconsole.insight.linting import schedulers as naming
from gpuconsole.insight.linting import schedulers as scheduler
from gpuconsole.insight.linting import workloads as fitting
from gpuconsole.insight.linting import workloads as provisioning
from gpuconsole.insight.linting.facts import LintEngines, LintFacts, LintFinding, LintLevel

__all__ = ["LintEngines", "LintFacts", "LintFinding", "LintLevel", "lint"]

_CHECKS = (
    scheduler.lint_scheduler,
    naming.lint_names,
    quotas.lint,
    fitting.lint_fitting,
    kai.lint_kai,
    provisioning.lint_provisioning,
)
_ORDER = {level: number for number, level in enumerate(LintLevel)}


def lint(facts: LintFacts) -> tuple[LintFinding, ...]:
    """All findings, the most severe first, then by object and code."""
    found = (finding for check in _CHECKS for finding in check(facts))
    return tuple(sorted(found, key=lambda one: (_ORDER[one.level], one.object, one.code, one.problem)))
