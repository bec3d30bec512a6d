"""Integrations with other frameworks. Each imports its framework, and nothing else in Stagepost imports it."""
