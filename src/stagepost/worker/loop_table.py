"""Every loop of a worker: the worker, the documentation and `stagepost workers list --loops` read this table."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, StrEnum

from stagepost.loops.service import Service
from stagepost.upkeep.batch_rescuer import BatchRescuer
from stagepost.upkeep.dead_letters import DeadLetterCollector
from stagepost.upkeep.leader import BROKER, UPKEEP, Leader
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
from stagepost.worker.claimer import Claimer
from stagepost.worker.concluder import Concluder
from stagepost.worker.crash_isolation import CrashIsolation
from stagepost.worker.finisher import Finisher
from stagepost.worker.leased_ahead import LeasedAhead
from stagepost.worker.limit_opener import LimitOpener
from stagepost.worker.receiver import Receiver
from stagepost.worker.reporter import Reporter

__all__ = ["LOOPS", "WHEN_WOKEN", "Loop", "RunsOn", "Stage"]

WHEN_WOKEN = "when woken"


class RunsOn(StrEnum):
    """Which workers do the work of a loop."""

    EVERY_WORKER = "every worker"
    LEADER = "the leader"
    BROKER_LEADER = "the leader for the broker"

    @property
    def leadership(self) -> str | None:
        """The name of the leadership that a worker needs; None if it needs none."""
        return {RunsOn.LEADER: UPKEEP, RunsOn.BROKER_LEADER: BROKER}.get(self)


class Stage(Enum):
    """When a shutdown stops a loop."""

    UPKEEP = 3
    """Last, after all outcomes are written."""
    RUNNING = 2
    """When the attempts that are running have ended and their outcomes are written."""
    INTAKE = 1
    """First, so that no more jobs come in."""


@dataclass(frozen=True)
class Loop:
    """One loop of a worker."""

    name: str
    """The attribute of `Parts`, or of `BrokerParts`, that builds it."""
    service: type[Service]
    stage: Stage
    runs_on: RunsOn
    interval: str
    """The time between two passes with default settings; a signal may start the next pass earlier."""
    purpose: str
    needs_broker: bool = False


EVERY, LEADER, BROKER_LEADER = RunsOn.EVERY_WORKER, RunsOn.LEADER, RunsOn.BROKER_LEADER
UPKEEP_STAGE, RUNNING, INTAKE = Stage.UPKEEP, Stage.RUNNING, Stage.INTAKE

# fmt: off
LOOPS = (
    Loop("leader", Leader, UPKEEP_STAGE, EVERY, "2.7 s",
         "Takes or renews the leadership of the upkeep, which is a row with a term."),
    Loop("promoter", Promoter, UPKEEP_STAGE, EVERY, "0.01 to 1 s",
         "Queues jobs that are due, and blocked jobs whose limit, rate or task allows them to start."),
    Loop("limit_opener", LimitOpener, UPKEEP_STAGE, EVERY, WHEN_WOKEN,
         "Lets the next jobs of a limit start after others ended on this worker."),
    Loop("rescuer", Rescuer, UPKEEP_STAGE, EVERY, "5 s",
         "Queues jobs whose lease expired because their worker died."),
    Loop("scheduler", Scheduler, UPKEEP_STAGE, LEADER, "0.01 to 5 s",
         "Enqueues the jobs of schedules that are due."),
    Loop("schedule_declarer", ScheduleDeclarer, UPKEEP_STAGE, EVERY, "60 s",
         "Renews the schedules that the worker's code declares; the leader stops those that no worker declares."),
    Loop("concluder", Concluder, UPKEEP_STAGE, EVERY, WHEN_WOKEN,
         "Finishes batches whose last item ended on this worker."),
    Loop("batch_rescuer", BatchRescuer, UPKEEP_STAGE, LEADER, "2 s",
         "Finishes batches that no worker finished, and continues to cancel the items of cancelled batches."),
    Loop("pruner", Pruner, UPKEEP_STAGE, LEADER, "60 s",
         "Deletes old history, reports jobs whose task no worker knows, and frees keys of jobs deleted by hand."),
    Loop("move_compactor", MoveCompactor, UPKEEP_STAGE, LEADER, "1 to 10 s",
         "Adds recorded moves of jobs to the counts."),
    Loop("recounter", Recounter, UPKEEP_STAGE, LEADER, "200 s",
         "Compares the counts of queues, unfinished batches and gates with their rows, and corrects differences."),
    Loop("reporter", Reporter, UPKEEP_STAGE, EVERY, "5 s",
         "Reports the worker's state to the table of workers, and logs slots that are stuck."),
    Loop("sent_job_requeuer", SentJobRequeuer, UPKEEP_STAGE, LEADER, "5 s",
         "Returns jobs that were sent to a broker to their queues, once no worker uses a broker."),
    Loop("broker_leader", Leader, UPKEEP_STAGE, EVERY, "2.7 s",
         "Takes or renews the leadership of the work with the broker.", needs_broker=True),
    Loop("relay", Relay, UPKEEP_STAGE, BROKER_LEADER, "1 s",
         "Publishes jobs of carried queues, the outbox, and notices of failed jobs.", needs_broker=True),
    Loop("reconciler", Reconciler, UPKEEP_STAGE, BROKER_LEADER, "5 s",
         "Finds jobs whose message was lost, and sends them again.", needs_broker=True),
    Loop("collector", DeadLetterCollector, UPKEEP_STAGE, BROKER_LEADER, "1 s",
         "Stores the messages of the broker's dead-letter queue.", needs_broker=True),
    Loop("finisher", Finisher, RUNNING, EVERY, WHEN_WOKEN,
         "Writes the outcomes of attempts in groups."),
    Loop("crash_isolation", CrashIsolation, RUNNING, EVERY, WHEN_WOKEN,
         "Runs jobs that have crashed twice one at a time."),
    Loop("leased_ahead", LeasedAhead, RUNNING, EVERY, WHEN_WOKEN,
         "Returns jobs that were leased ahead to their queue if no slot becomes free in time."),
    Loop("claimer", Claimer, INTAKE, EVERY, "0.2 to 2 s",
         "Leases jobs for free slots."),
    Loop("receiver", Receiver, INTAKE, EVERY, "1 s",
         "Leases the jobs that messages from the broker name.", needs_broker=True),
    Loop("answers", Answers, INTAKE, EVERY, "1 s",
         "Settles remote jobs with the answers of the programs that ran them.", needs_broker=True),
)
# fmt: on
"""In the order in which a worker starts them."""
