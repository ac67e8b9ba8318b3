"""Indexes of a Snapshot: queues, quota, pods, GPUs, topology."""
