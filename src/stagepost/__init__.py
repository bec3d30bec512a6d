"""Stagepost: a durable task platform for Python."""
