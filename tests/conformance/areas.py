"""Every table that can be run, in the order in which they are printed."""

from tests.conformance import cycle, preemption
from tests.conformance.tables import Check

CHECKS: dict[str, Check] = {**cycle.CHECKS, **preemption.CHECKS}
