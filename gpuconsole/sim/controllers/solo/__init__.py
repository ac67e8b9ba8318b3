"""Pods that work independently: those of a batch/v1 Job, each on one completion index, and those of services.

`progress` decides what a Job does next and when it is finished; the others carry it out.
"""
