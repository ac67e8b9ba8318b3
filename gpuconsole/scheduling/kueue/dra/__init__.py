"""Quota charges for devices of dynamic resource allocation (DRA), as in Kueue 0.19 pkg/dra.

`charges` is the entry point: the charges for a workload's claims and extended resources, or why it cannot be queued.
"""
