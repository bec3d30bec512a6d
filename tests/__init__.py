"""Stagepost's tests and the harness they share."""
