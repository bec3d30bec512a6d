"""Brings work to workers sooner than polling: RabbitMQ, and the choice of wake-ups."""

from stagepost.transport.wakeups import Wakeups, wakeups_for

__all__ = ["Wakeups", "wakeups_for"]
