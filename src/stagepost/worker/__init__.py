"""Runs attempts."""

from stagepost.worker.worker import Worker

__all__ = ["Worker"]
