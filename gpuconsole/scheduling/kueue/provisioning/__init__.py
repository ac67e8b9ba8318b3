"""Kueue's admission check that requests nodes from an autoscaler with ProvisioningRequests.

Kueue 0.19 pkg/controller/admissionchecks/provisioning.
"""
