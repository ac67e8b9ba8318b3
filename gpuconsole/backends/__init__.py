"""Backends: sources of cluster events and targets of commands, simulated or live."""
