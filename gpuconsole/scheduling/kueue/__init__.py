"""Admission by Kueue's rules, decision for decision as Kueue v0.19.2."""
