"""Topology-aware scheduling (TAS): assigns pods to topology domains close to each other.

Kueue 0.19 cache/scheduler/tas_*.go and controller/tas. `demand` has the requests. `tas_assignment` finds assignments
group by group (`tas_domain_counts`, then `layout`), for pods of a failed node, and for a slice
of an elastic job. `layout` also keeps the usage, `node_failures` checks nodes and removes the gates of pods.
"""
