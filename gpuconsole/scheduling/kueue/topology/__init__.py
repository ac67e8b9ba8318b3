"""Topology-aware scheduling (TAS): assigns pods to topology domains close to each other.

Kueue 0.19 cache/scheduler/tas_*.go and controller/tas. `demand` has the requests, `placement` finds assignments:
group by group (`group`, `layout`, `balanced`), for pods of a failed node (`replacement`), for a slice of an elastic
job (`elastic`). `node_failures` checks nodes, `topology_ungater` removes the gates of pods, and `tas_non_tas_pods`
counts pods without a topology assignment.
"""
