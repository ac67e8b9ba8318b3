"""Reasons why workloads, jobs and pods are pending."""
