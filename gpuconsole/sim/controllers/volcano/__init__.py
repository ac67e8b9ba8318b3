"""Volcano's job controller: changes of pods and PodGroups become requests, requests become actions.

The rules are in `scheduling.volcano.jobs`; this package carries them out.
"""
