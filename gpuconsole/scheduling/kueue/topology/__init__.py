"""Topology-aware scheduling: pods are given places close to each other (Kueue 0.19 cache/scheduler/tas_*.go)."""
