"""What operators read and do, for programs: the types that `app.queues`, `app.dead_letters` and the like return.

`app.jobs`, `app.queues` and the other collections are enough for most programs. Import from here to name a type, or to
check for lost messages with `reconcile`.
"""

from stagepost.client.broker_view import BrokerView, QueueView
from stagepost.client.health import Check
from stagepost.client.listings import BatchProgress
from stagepost.client.operator_records import (
    BulkResult,
    DeadLetterGroup,
    DeadMessage,
    GateStatus,
    JobPage,
    Queue,
    RegisteredWorker,
    RunSummary,
    Schedule,
    ScheduleRun,
)
from stagepost.model.timeline import Moment
from stagepost.operations.reconcile import ReconciledQueue, reconcile, reconcile_async
from stagepost.store.counting import Drift
from stagepost.transport.rabbitmq.admin import Comparison
from stagepost.transport.rabbitmq.topology import QueuePlan, Topology

__all__ = [
    "BatchProgress",
    "BrokerView",
    "BulkResult",
    "Check",
    "Comparison",
    "DeadLetterGroup",
    "DeadMessage",
    "Drift",
    "GateStatus",
    "JobPage",
    "Moment",
    "Queue",
    "QueuePlan",
    "QueueView",
    "ReconciledQueue",
    "RegisteredWorker",
    "RunSummary",
    "Schedule",
    "ScheduleRun",
    "Topology",
    "reconcile",
    "reconcile_async",
]
