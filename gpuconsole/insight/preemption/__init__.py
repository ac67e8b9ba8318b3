"""Preemption history and preemption risk."""
