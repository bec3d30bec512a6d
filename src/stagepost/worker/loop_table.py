"""Every loop of a worker: the worker, the documentation and `stagepost workers list --loops` read this table."""

from __future__ import annotations

from collections.abc import Callable

from stagepost.loops.service import Service
from stagepost.upkeep.batch_rescuer import BatchRescuer
from stagepost.upkeep.dead_letters import DeadLetterCollector
from stagepost.upkeep.leader import Leader
from stagepost.upkeep.move_compactor import MoveCompactor
from stagepost.upkeep.promoter import Promoter
from stagepost.upkeep.pruner import Pruner
from stagepost.upkeep.reconciler import Reconciler
from stagepost.upkeep.recounter import Recounter
from stagepost.upkeep.relay import Relay
from stagepost.upkeep.rescuer import Rescuer
from stagepost.upkeep.schedule_declarer import ScheduleDeclarer
from stagepost.upkeep.scheduler import Scheduler
from stagepost.upkeep.sent_job_requeuer import SentJobRequeuer
from stagepost.worker.answers import Answers
from stagepost.worker.broker import BrokerParts
from stagepost.worker.claimer import Claimer
from stagepost.worker.concluder import Concluder
from stagepost.worker.crash_isolation import CrashIsolation
from stagepost.worker.finisher import Finisher
from stagepost.worker.leased_ahead import LeasedAhead
from stagepost.worker.limit_opener import LimitOpener
from stagepost.worker.loop import WHEN_WOKEN, Loop, RunsOn, Stage
from stagepost.worker.parts import Parts
from stagepost.worker.receiver import Receiver
from stagepost.worker.reporter import Reporter

__all__ = ["LOOPS"]

EVERY, LEADER, BROKER_LEADER = RunsOn.EVERY_WORKER, RunsOn.LEADER, RunsOn.BROKER_LEADER
UPKEEP_STAGE, RUNNING, INTAKE = Stage.UPKEEP, Stage.RUNNING, Stage.INTAKE


def broker_loop(
    name: str,
    part: Callable[[BrokerParts], Service | None],
    service: type[Service],
    *facts: *tuple[Stage, RunsOn, str, str],
) -> Loop[Parts]:
    """Describe a loop that only a worker with a broker runs."""
    return Loop(
        name, lambda parts: None if parts.broker is None else part(parts.broker), service, *facts, needs_broker=True
    )


# fmt: off
LOOPS: tuple[Loop[Parts], ...] = (
    Loop("leader", lambda parts: parts.leader, Leader, UPKEEP_STAGE, EVERY, "2.7 s",
         "Takes or renews the leadership of the upkeep, which is a row with a term."),
    Loop("promoter", lambda parts: parts.promoter, Promoter, UPKEEP_STAGE, EVERY, "0.01 to 1 s",
         "Queues jobs that are due, and blocked jobs whose limit, rate or task allows them to start."),
    Loop("limit_opener", lambda parts: parts.limit_opener, LimitOpener, UPKEEP_STAGE, EVERY, WHEN_WOKEN,
         "Lets the next jobs of a limit start after others ended on this worker."),
    Loop("rescuer", lambda parts: parts.rescuer, Rescuer, UPKEEP_STAGE, EVERY, "5 s",
         "Queues jobs whose lease expired because their worker died."),
    Loop("scheduler", lambda parts: parts.scheduler, Scheduler, UPKEEP_STAGE, LEADER, "0.01 to 5 s",
         "Enqueues the jobs of schedules that are due."),
    Loop("schedule_declarer", lambda parts: parts.schedule_declarer, ScheduleDeclarer, UPKEEP_STAGE, EVERY, "60 s",
         "Renews the schedules that the worker's code declares; the leader stops those that no worker declares."),
    Loop("concluder", lambda parts: parts.concluder, Concluder, UPKEEP_STAGE, EVERY, WHEN_WOKEN,
         "Finishes batches whose last item ended on this worker."),
    Loop("batch_rescuer", lambda parts: parts.batch_rescuer, BatchRescuer, UPKEEP_STAGE, LEADER, "2 s",
         "Finishes batches that no worker finished, and continues to cancel the items of cancelled batches."),
    Loop("pruner", lambda parts: parts.pruner, Pruner, UPKEEP_STAGE, LEADER, "60 s",
         "Deletes old history, reports jobs whose task no worker knows, and frees keys of jobs deleted by hand."),
    Loop("move_compactor", lambda parts: parts.move_compactor, MoveCompactor, UPKEEP_STAGE, LEADER, "1 to 10 s",
         "Adds recorded moves of jobs to the counts."),
    Loop("recounter", lambda parts: parts.recounter, Recounter, UPKEEP_STAGE, LEADER, "200 s",
         "Compares the counts of jobs, unfinished batches and gates in turn with their rows, and corrects them."),
    Loop("reporter", lambda parts: parts.reporter, Reporter, UPKEEP_STAGE, EVERY, "5 s",
         "Reports the worker's state to the table of workers, and logs slots that are stuck."),
    Loop("sent_job_requeuer", lambda parts: parts.sent_job_requeuer, SentJobRequeuer, UPKEEP_STAGE, LEADER, "5 s",
         "Returns jobs that were sent to a broker to their queues, once no worker uses a broker."),
    broker_loop("broker_leader", lambda broker: broker.broker_leader, Leader, UPKEEP_STAGE, EVERY, "2.7 s",
                "Takes or renews the leadership of the work with the broker."),
    broker_loop("relay", lambda broker: broker.relay, Relay, UPKEEP_STAGE, BROKER_LEADER, "1 s",
                "Publishes jobs of carried queues, the outbox, and notices of failed jobs."),
    broker_loop("reconciler", lambda broker: broker.reconciler, Reconciler, UPKEEP_STAGE, BROKER_LEADER, "5 s",
                "Finds jobs whose message was lost, and sends them again."),
    broker_loop("collector", lambda broker: broker.collector, DeadLetterCollector, UPKEEP_STAGE, BROKER_LEADER, "1 s",
                "Stores the messages of the broker's dead-letter queue."),
    Loop("finisher", lambda parts: parts.finisher, Finisher, RUNNING, EVERY, WHEN_WOKEN,
         "Writes the outcomes of attempts in groups."),
    Loop("crash_isolation", lambda parts: parts.crash_isolation, CrashIsolation, RUNNING, EVERY, WHEN_WOKEN,
         "Runs jobs that have crashed twice one at a time."),
    Loop("leased_ahead", lambda parts: parts.leased_ahead, LeasedAhead, RUNNING, EVERY, WHEN_WOKEN,
         "Returns jobs that were leased ahead to their queue if no slot becomes free in time."),
    Loop("claimer", lambda parts: parts.claimer, Claimer, INTAKE, EVERY, "0.2 to 2 s",
         "Leases jobs for free slots."),
    broker_loop("receiver", lambda broker: broker.receiver, Receiver, INTAKE, EVERY, "1 s",
                "Leases the jobs that messages from the broker name."),
    broker_loop("answers", lambda broker: broker.answers, Answers, INTAKE, EVERY, "1 s",
                "Settles remote jobs with the answers of the programs that ran them."),
)
# fmt: on
"""In the order in which a worker starts them."""
