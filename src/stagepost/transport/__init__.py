"""What brings work to workers sooner than they would look for it."""

from stagepost.transport.wakeups import Wakeups, wakeups_for

__all__ = ["Wakeups", "wakeups_for"]
