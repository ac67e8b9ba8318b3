"""Devices by claims (dynamic resource allocation) as quota: Kueue 0.19 pkg/dra.

`charges` is the way in: what the claims and the device-backed resources of a workload cost, or why it is refused.
"""
