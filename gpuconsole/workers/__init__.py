"""The worker process: it keeps a replica of the simulation and computes there what the screens ask.

The replica is fed by the same commands at the same virtual times, so it is the same simulation; a digest of all that
happened, sent along, proves it.
"""
