"""Faults on purpose: private servers to kill and pause, a proxy that breaks connections."""
