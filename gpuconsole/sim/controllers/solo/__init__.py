"""Pods that work each for itself: those of a batch/v1 Job, one piece of work each, and those that serve.

`progress` says what a Job has to do next and when it is over; the others carry it out.
"""
