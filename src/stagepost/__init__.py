"""Stagepost: a durable task platform for Python."""

from stagepost.client import App, AppTask, AsyncAppTask, AsyncClient, Client, JobContext, JobHandle, current_job
from stagepost.client.limiter import RateLimiter
from stagepost.clock import ManualClock
from stagepost.config import Settings
from stagepost.config.logging import JobContextFilter, configure_logging
from stagepost.errors import (
    Cancelled,
    ConfigurationError,
    IllegalTransition,
    JobError,
    JobFailed,
    JobNotFound,
    LeaseLost,
    NoTransaction,
    PayloadError,
    PayloadTooLarge,
    Permanent,
    Retryable,
    ScheduleNotFound,
    SchemaError,
    Snooze,
    StagepostError,
    StoreError,
    StoreUnavailable,
    TaskError,
    UniqueKeyTaken,
    UnknownTask,
    WaitTimeout,
)
from stagepost.model.context import TraceContext, traced
from stagepost.model.job import Enqueued, FailureRecord, Job, NewJob, OnConflict
from stagepost.model.lifecycle import JobState
from stagepost.model.payload import Limits
from stagepost.model.rate import RateLimit
from stagepost.model.retry import RetryPolicy
from stagepost.model.schedule import CatchUp
from stagepost.task import JobOptions
from stagepost.worker import Worker

__all__ = [
    "App",
    "AppTask",
    "AsyncAppTask",
    "AsyncClient",
    "Cancelled",
    "CatchUp",
    "Client",
    "ConfigurationError",
    "Enqueued",
    "FailureRecord",
    "IllegalTransition",
    "Job",
    "JobContext",
    "JobContextFilter",
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
    "OnConflict",
    "PayloadError",
    "PayloadTooLarge",
    "Permanent",
    "RateLimit",
    "RateLimiter",
    "RetryPolicy",
    "Retryable",
    "ScheduleNotFound",
    "SchemaError",
    "Settings",
    "Snooze",
    "StagepostError",
    "StoreError",
    "StoreUnavailable",
    "TaskError",
    "TraceContext",
    "UniqueKeyTaken",
    "UnknownTask",
    "WaitTimeout",
    "Worker",
    "configure_logging",
    "current_job",
    "traced",
]
