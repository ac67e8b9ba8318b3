"""Victim search: scenarios that grow step by step, each tried in a statement, until the job fits."""
