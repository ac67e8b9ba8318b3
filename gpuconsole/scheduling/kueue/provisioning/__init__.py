"""Kueue's admission check that requests nodes from an autoscaler with ProvisioningRequests.

`needs` selects the pods to request, `attempts` names the requests, `answers` reads their conditions, `references`
finds the config of a check, and `controller` reconciles (Kueue 0.19 pkg/controller/admissionchecks/provisioning).
"""
