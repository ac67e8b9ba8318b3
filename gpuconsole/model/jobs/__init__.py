"""Job kinds as pod sets, and what Kueue makes of them."""

from gpuconsole.model.jobs.naming import pod_name, workload_name
from gpuconsole.model.jobs.workloads import workload_of

__all__ = ["pod_name", "workload_name", "workload_of"]
