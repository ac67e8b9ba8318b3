"""Kueue's workload controller: reconciles a Workload from its conditions, checks, queues and the time, as pure
functions.
"""
