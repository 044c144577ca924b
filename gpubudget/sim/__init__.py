"""Replaying histories through the scheduler, and auditing their event logs."""
