"""Every table that can be run, in the order in which they are printed."""

from tests.conformance import assigning, cycle, preemption, topology
from tests.conformance.tables import Check

CHECKS: dict[str, Check] = {**cycle.CHECKS, **preemption.CHECKS, **assigning.CHECKS, **topology.CHECKS}
