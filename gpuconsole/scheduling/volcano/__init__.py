"""Volcano 1.15.1's scheduler: sessions, actions and plugins over tasks, jobs, queues, nodes and hyper nodes.

Where Volcano breaks a tie at random or by the order of a Go map, this one is stable: by name.
"""
