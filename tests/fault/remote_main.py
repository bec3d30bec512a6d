"""A worker for fault tests whose app has a remote task, and nothing else to do."""

from __future__ import annotations

import asyncio
import os
from datetime import timedelta

import msgspec

from stagepost.client import App
from stagepost.config import Settings
from stagepost.config.logging import configure_logging
from stagepost.config.rabbitmq import RabbitmqSettings
from tests.fault.worker_main import QuickWorker

PREFIX = "FAULT_PREFIX"
RABBITMQ = RabbitmqSettings(lost_after_seconds=2.0)


def app_of(settings: Settings, *, prefix: str) -> App:
    """Make the app that both the test and its workers use."""
    rabbitmq = msgspec.structs.replace(RABBITMQ, prefix=prefix)
    app = App(settings=msgspec.structs.replace(settings, rabbitmq=rabbitmq), auto_migrate=False)

    @app.task(name="recognise", queue="recogniser", remote=True, timeout=timedelta(seconds=60))
    def recognise(audio_key: str) -> dict[str, str | int]:
        raise AssertionError(f"{audio_key} is not recognised here")

    return app


def main() -> None:
    """Run until told to stop."""
    configure_logging()
    app = app_of(Settings.load(), prefix=os.environ[PREFIX])
    try:
        asyncio.run(QuickWorker(app).run(install_signals=True))
    finally:
        app.close()
