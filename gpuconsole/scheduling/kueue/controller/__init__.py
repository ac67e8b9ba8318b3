"""Kueue's workload controller: what a Workload's conditions, checks, queues and the time call for, as pure steps."""
