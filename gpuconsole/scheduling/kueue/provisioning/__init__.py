"""Capacity on request: the admission check of Kueue that asks an autoscaler for nodes before a workload runs.

`needs` says which pods have to be asked for, `attempts` names the requests, `answers` reads what the autoscaler said,
`controller` puts them together (Kueue 0.19 pkg/controller/admissionchecks/provisioning).
"""
