"""Databases and brokers for tests: found, started privately, or installed (order: CONTRIBUTING.md)."""
