"""The worker process: keeps a replica of the simulation, and computes the screens' reports.

The replica receives the same commands at the same virtual times, so it is the same simulation; a digest of all events
verifies that.
"""
