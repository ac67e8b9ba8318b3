"""Validation by KAI Scheduler's webhooks (KAI 0.13 pkg/apis/scheduling)."""
