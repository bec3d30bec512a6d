"""Stagepost: a durable task platform for Python."""

from stagepost.client import App, AppTask, AsyncAppTask, Client, JobContext, JobHandle, current_job
from stagepost.client.batches import BatchHandle
from stagepost.client.children import Child
from stagepost.client.gates import Gate
from stagepost.client.limiter import RateLimiter
from stagepost.client.pipelines import Pipeline
from stagepost.client.runs import RunHandle
from stagepost.client.steps import PipelineInput, Step, StepOutput
from stagepost.clock import ManualClock
from stagepost.config import Settings
from stagepost.config.logging import JobContextFilter, configure_logging
from stagepost.errors import (
    BadMessage,
    BatchClosed,
    BatchError,
    BatchNotFound,
    BrokerUnavailable,
    Cancelled,
    ChildDiffers,
    ConfigurationError,
    GateClosed,
    IllegalTransition,
    JobDiffers,
    JobError,
    JobFailed,
    JobNotFound,
    LeaseLost,
    NoTransaction,
    PayloadError,
    PayloadTooLarge,
    Permanent,
    PipelineError,
    Retryable,
    RunError,
    RunNotFound,
    ScheduleNotFound,
    SchemaError,
    Snooze,
    SourceMismatch,
    StagepostError,
    StoreError,
    StoreUnavailable,
    TaskError,
    TopologyConflict,
    TransportError,
    UniqueKeyTaken,
    UnknownTask,
    ValueTooLarge,
    WaitTimeout,
)
from stagepost.model.alert import Alert, AlertKind
from stagepost.model.batch import Batch, BatchState, Counts, Cursor, Item, OnFailed, Progress, StoredItem
from stagepost.model.children import OnChildFailed
from stagepost.model.context import TraceContext, traced
from stagepost.model.job import Enqueued, FailureRecord, Job, NewJob, OnConflict
from stagepost.model.lifecycle import JobState
from stagepost.model.payload import Limits
from stagepost.model.pipeline import OnStepFailed, RunState, StepState
from stagepost.model.rate import RateLimit
from stagepost.model.retry import RetryPolicy
from stagepost.model.schedule import CatchUp
from stagepost.store.listing import FailedGroup
from stagepost.store.run_views import RunView, StepView
from stagepost.task import JobOptions
from stagepost.worker import Worker

__all__ = [
    "Alert",
    "AlertKind",
    "App",
    "AppTask",
    "AsyncAppTask",
    "BadMessage",
    "Batch",
    "BatchClosed",
    "BatchError",
    "BatchHandle",
    "BatchNotFound",
    "BatchState",
    "BrokerUnavailable",
    "Cancelled",
    "CatchUp",
    "Child",
    "ChildDiffers",
    "Client",
    "ConfigurationError",
    "Counts",
    "Cursor",
    "Enqueued",
    "FailedGroup",
    "FailureRecord",
    "Gate",
    "GateClosed",
    "IllegalTransition",
    "Item",
    "Job",
    "JobContext",
    "JobContextFilter",
    "JobDiffers",
    "JobError",
    "JobFailed",
    "JobHandle",
    "JobNotFound",
    "JobOptions",
    "JobState",
    "LeaseLost",
    "Limits",
    "ManualClock",
    "NewJob",
    "NoTransaction",
    "OnChildFailed",
    "OnConflict",
    "OnFailed",
    "OnStepFailed",
    "PayloadError",
    "PayloadTooLarge",
    "Permanent",
    "Pipeline",
    "PipelineError",
    "PipelineInput",
    "Progress",
    "RateLimit",
    "RateLimiter",
    "RetryPolicy",
    "Retryable",
    "RunError",
    "RunHandle",
    "RunNotFound",
    "RunState",
    "RunView",
    "ScheduleNotFound",
    "SchemaError",
    "Settings",
    "Snooze",
    "SourceMismatch",
    "StagepostError",
    "Step",
    "StepOutput",
    "StepState",
    "StepView",
    "StoreError",
    "StoreUnavailable",
    "StoredItem",
    "TaskError",
    "TopologyConflict",
    "TraceContext",
    "TransportError",
    "UniqueKeyTaken",
    "UnknownTask",
    "ValueTooLarge",
    "WaitTimeout",
    "Worker",
    "configure_logging",
    "current_job",
    "traced",
]
