"""Analyses of a cluster: each module computes one answer from Snapshots and returns it as data."""
