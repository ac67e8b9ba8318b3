"""Volcano's job controller at work: what happens to pods and PodGroups becomes requests, requests become actions.

The rules are `scheduling.volcano.jobs`; here they are carried out.
"""
