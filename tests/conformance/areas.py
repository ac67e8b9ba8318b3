"""Every table that can be run, in the order in which they are printed."""

from tests.conformance import assigning, cycle, limits, ordering, preemption, quotas, topology, workloads
from tests.conformance.tables import Check

CHECKS: dict[str, Check] = {
    **cycle.CHECKS,
    **ordering.CHECKS,
    **preemption.CHECKS,
    **assigning.CHECKS,
    **quotas.CHECKS,
    **topology.CHECKS,
    **workloads.CHECKS,
    **limits.CHECKS,
}
