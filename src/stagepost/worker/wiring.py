"""Which signal wakes which loop of a worker: all of it is here."""

from __future__ import annotations

from stagepost.upkeep.leader import Leader
from stagepost.worker.loop import Stage
from stagepost.worker.parts import Parts

__all__ = ["connect"]


def connect(parts: Parts) -> None:
    """Connect every signal of a worker to the loops that it wakes."""
    signals, broker = parts.signals, parts.broker

    signals.jobs_ready.connect(parts.claimer.wake)
    signals.jobs_scheduled.connect(parts.promoter.wake)
    signals.outcomes_written.connect(parts.claimer.wake)
    signals.slot_idle.connect(parts.claimer.wake_if_full)
    signals.attempts_ended.connect(parts.pace.note)
    signals.attempts_waiting.connect(parts.leased_ahead.wake)
    signals.batches_touched.connect(parts.concluder.note)
    signals.limits_freed.connect(parts.limit_opener.note)
    signals.elected.connect(*(loop.wake for loop in parts.loops_of(Stage.UPKEEP) if not isinstance(loop, Leader)))
    parts.attempts.removed.connect(parts.crash_isolation.note_removed)

    if broker is not None:
        signals.jobs_ready.connect(broker.relay.wake)
        signals.messages_ready.connect(broker.relay.wake)
        if broker.receiver is not None:
            parts.attempts.removed.connect(broker.receiver.note_removed)
