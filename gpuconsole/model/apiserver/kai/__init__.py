"""What KAI Scheduler's webhooks refuse (KAI 0.13 pkg/apis/scheduling)."""
