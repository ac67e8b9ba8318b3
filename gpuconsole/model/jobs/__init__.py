"""Job kinds: their manifests as pod sets, and the Workloads that Kueue creates for them."""

from gpuconsole.model.jobs.workloads import pod_name, workload_name, workload_of

__all__ = ["pod_name", "workload_name", "workload_of"]
