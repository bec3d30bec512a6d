"""A worker for fault tests: short leases, quick upkeep, and the tasks in `tasks.py`."""

from __future__ import annotations

import asyncio
import faulthandler
import json
import os
import signal
import sys
from dataclasses import replace
from datetime import timedelta

from stagepost.client import App
from stagepost.config.logging import configure_logging
from stagepost.upkeep.batch_rescuer import BatchRescuer
from stagepost.upkeep.reconciler import Uncarried
from stagepost.upkeep.relay import Relay
from stagepost.upkeep.rescuer import Rescuer
from stagepost.worker import Worker, stopping
from stagepost.worker.reporter import Reporter

SLOW_SECONDS = 600.0
QUEUES = "FAULT_QUEUES"
TASKS = "FAULT_TASKS"
IMPATIENT = "FAULT_IMPATIENT"
"""Set where the database hangs on purpose; elsewhere it is slow, because the machine is busy."""


class QuickWorker(Worker):
    """A worker whose upkeep notices in tenths of a second what takes seconds in production."""

    def _build(self) -> None:
        super()._build()
        for leader in self._leaders:
            leader.term = timedelta(seconds=0.9)
            leader.interval = 0.3
        self.promoter.interval = 0.2
        for service in self.upkeep:
            if isinstance(service, Rescuer):
                service.interval = 0.2
                service._margin = timedelta(seconds=0.2)
            if isinstance(service, BatchRescuer | Relay | Uncarried | Reporter):
                service.interval = 0.3


def main() -> None:
    """Run until told to stop."""
    configure_logging()
    faulthandler.register(signal.SIGUSR2, chain=False)  # for whoever looks into a hang
    import tests.fault.families
    import tests.fault.large
    import tests.fault.uploads  # noqa: F401 - all register tasks
    from tests.fault.tasks import app, configure

    configure()
    if IMPATIENT not in os.environ:
        wait_for_slow_databases()
    if known := names_in(TASKS):
        app.registry._tasks = {name: app.registry.get(name) for name in known}
    queues = names_in(QUEUES)

    async def work() -> None:
        asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, report_pools, app)
        await QuickWorker(app, queues=queues).run(install_signals=True)

    try:
        asyncio.run(work())
    finally:
        app.close()


def wait_for_slow_databases() -> None:
    """Let a worker that stops write everything, however long that takes."""
    for name in ("HURRIED", "UNHURRIED"):
        setattr(stopping, name, replace(getattr(stopping, name), writing=SLOW_SECONDS, total=SLOW_SECONDS))


def report_pools(app: App) -> None:
    """Tell the log how many connections are on loan."""
    stores = {"store": app.store, "users": app.users_store}
    in_use = {name: store.pool.in_use for name, store in stores.items()}
    sys.stderr.write(f"pools:{json.dumps(in_use)}\n")


def names_in(variable: str) -> list[str]:
    return [name for name in os.environ.get(variable, "").split(",") if name]


if __name__ == "__main__":
    main()
