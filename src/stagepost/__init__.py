"""Stagepost: a durable task platform for Python."""

from importlib import import_module
from typing import TYPE_CHECKING

from stagepost.client import App, AppTask, AsyncAppTask, Client, JobContext, JobHandle, current_job
from stagepost.client.batches import BatchHandle
from stagepost.client.children import Child
from stagepost.client.gates import Gate
from stagepost.client.limiter import RateLimiter
from stagepost.client.pipelines import Pipeline
from stagepost.client.records import Batch, Job
from stagepost.client.runs import RunHandle
from stagepost.client.steps import PipelineInput, Step, StepOutput
from stagepost.config import Settings
from stagepost.config.logging import JobContextFilter, configure_logging
from stagepost.errors import Cancelled, Permanent, Retryable, Snooze, StagepostError
from stagepost.events import Event
from stagepost.model.alert import Alert, AlertKind
from stagepost.model.batch import BatchState, Counts, Cursor, Item, OnFailed, Progress, StoredItem
from stagepost.model.children import OnChildFailed
from stagepost.model.context import TraceContext, traced
from stagepost.model.job import Enqueued, FailureRecord, NewJob, OnConflict
from stagepost.model.lifecycle import JobState
from stagepost.model.options import JobOptions
from stagepost.model.payload import PayloadLimits
from stagepost.model.pipeline import OnStepFailed, RunState, StepState
from stagepost.model.rate import RateLimit
from stagepost.model.retry import RetryPolicy
from stagepost.model.schedule import CatchUp
from stagepost.store.listing import FailedGroup
from stagepost.store.run_views import RunView, StepView

if TYPE_CHECKING:
    from stagepost.worker import Worker

__all__ = [
    "Alert",
    "AlertKind",
    "App",
    "AppTask",
    "AsyncAppTask",
    "Batch",
    "BatchHandle",
    "BatchState",
    "Cancelled",
    "CatchUp",
    "Child",
    "Client",
    "Counts",
    "Cursor",
    "Enqueued",
    "Event",
    "FailedGroup",
    "FailureRecord",
    "Gate",
    "Item",
    "Job",
    "JobContext",
    "JobContextFilter",
    "JobHandle",
    "JobOptions",
    "JobState",
    "NewJob",
    "OnChildFailed",
    "OnConflict",
    "OnFailed",
    "OnStepFailed",
    "PayloadLimits",
    "Permanent",
    "Pipeline",
    "PipelineInput",
    "Progress",
    "RateLimit",
    "RateLimiter",
    "RetryPolicy",
    "Retryable",
    "RunHandle",
    "RunState",
    "RunView",
    "Settings",
    "Snooze",
    "StagepostError",
    "Step",
    "StepOutput",
    "StepState",
    "StepView",
    "StoredItem",
    "TraceContext",
    "Worker",
    "configure_logging",
    "current_job",
    "traced",
]


def __getattr__(name: str) -> object:
    """Import the worker when it is first used: a program that only enqueues jobs starts faster without it."""
    if name != "Worker":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    worker: object = import_module("stagepost.worker").Worker
    globals()[name] = worker
    return worker


def __dir__() -> list[str]:
    return [*globals(), "Worker"]
