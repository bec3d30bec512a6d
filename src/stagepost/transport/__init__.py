"""Brings work to workers sooner than polling: wake-ups and RabbitMQ."""

from stagepost.transport.wakeups import Wakeups, wakeups_for

__all__ = ["Wakeups", "wakeups_for"]
