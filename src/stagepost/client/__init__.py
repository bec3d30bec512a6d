"""What applications call."""

from stagepost.client.app import App
from stagepost.client.batches import BatchHandle
from stagepost.client.client import Client
from stagepost.client.context import JobContext, current_job
from stagepost.client.gates import Gate
from stagepost.client.handle import JobHandle
from stagepost.client.tasks import AppTask, AsyncAppTask

__all__ = [
    "App",
    "AppTask",
    "AsyncAppTask",
    "BatchHandle",
    "Client",
    "Gate",
    "JobContext",
    "JobHandle",
    "current_job",
]
