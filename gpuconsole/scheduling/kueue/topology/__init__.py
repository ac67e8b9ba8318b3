"""Topology-aware scheduling (TAS): assigns pods to topology domains close to each other.

Kueue 0.19 cache/scheduler/tas_*.go and controller/tas. `demand` says what is asked, `placement` finds places: group by
group (`group`, `layout`, `balanced`), for pods of a node that failed (`replacement`), for a slice of an elastic job
(`elastic`). `health` judges nodes, `ungating` lets pods go to their places, `strangers` are pods placed by nobody here.
"""
