"""Volcano 1.15.1's scheduling rules: sessions, actions and plugins over tasks, jobs, queues, nodes and hyper nodes.

Where Volcano breaks a tie at random or by the order of a Go map, items are ordered by name here.
"""
