"""`stagepost worker`: runs jobs in this process, or in several under a supervisor."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from typing import Any

import click

from stagepost.cli.invocation import Invocation
from stagepost.cli.options import Command
from stagepost.cli.watch import report_sources
from stagepost.cli.worker_http import served
from stagepost.config.logging import FORMAT_VARIABLE, LEVEL_VARIABLE, LOG_FORMATS, LOG_LEVELS, configure_logging
from stagepost.database.deadline import Watcher
from stagepost.database.migrate import check_schema
from stagepost.worker.http_endpoint import HttpAddress
from stagepost.worker.supervisor import Supervisor
from stagepost.worker.supervisor_connection import OPTION, READY, ParentConnection
from stagepost.worker.worker import Worker

__all__ = ["queue_names", "worker", "worker_command", "worker_options"]

MUST_RESTART = 75
"""Exit code of a worker whose process cannot run more jobs; a supervisor then starts another process."""
LEAST_SECONDS = 0.2
"""The least time that the interpreter gets to shut down cleanly."""


def queue_names(_context: click.Context, _parameter: click.Parameter, value: tuple[str, ...]) -> list[str]:
    """Parse queue names such as `--queues a,b --queues c`."""
    return [name.strip() for text in value for name in text.split(",") if name.strip()]


def http_address(_context: click.Context, _parameter: click.Parameter, value: str | None) -> HttpAddress | None:
    """Parse the address of `--http`."""
    return None if value is None else HttpAddress.parse(value)


def worker_options(function: Any) -> Any:
    """Add the options that `worker` and `dev` share."""
    for option in (
        click.option(
            "--log-format", type=click.Choice(LOG_FORMATS), default="text", metavar="FORMAT", envvar=FORMAT_VARIABLE,
            help=f"How to write log records: text, or json with one object per line. Environment: {FORMAT_VARIABLE}. "
            "[default: text]",
        ),
        click.option(
            "--log-level", type=click.Choice(LOG_LEVELS), metavar="LEVEL", envvar=LEVEL_VARIABLE,
            help="Lowest level to log to standard error: debug, info, warning, error or critical. Environment: "
            f"{LEVEL_VARIABLE}. [default: info, in which `worker` leaves out attempts that completed]",
        ),
        click.option(
            "--concurrency", "-c", type=click.IntRange(min=1), metavar="N",
            help="Number of jobs that one process runs at once. [default: from the settings, 10]",
        ),
        click.option(
            "--queues", "-q", multiple=True, callback=queue_names, metavar="NAMES",
            help="Queues to process, separated by commas. [default: every queue that the app's tasks use]",
        ),
    ):  # fmt: skip
        function = option(function)
    return function


@click.command(cls=Command, short_help="Run the jobs of your app.")
@worker_options
@click.option(
    "--processes", type=click.IntRange(min=1), metavar="N",
    help="Run N worker processes under a supervisor, which replaces a process that dies.",
)  # fmt: skip
@click.option(
    "--shutdown-timeout", type=click.FloatRange(min=0), metavar="SECONDS",
    help="How long running jobs may continue after a request to stop. Jobs that have not finished by then return to "
    "their queue. [default: from the settings, 30]",
)  # fmt: skip
@click.option(
    "--http", "address", metavar="[HOST:]PORT", callback=http_address,
    help="Serve /metrics, /metrics/fleet, /livez and /readyz over HTTP, on 127.0.0.1 if only a port is given. With "
    "--processes, each process uses the next port.",
)  # fmt: skip
@click.option("--until-idle", is_flag=True, help="Exit when no more jobs are due.")
@click.option(OPTION, type=int, hidden=True)
@click.option("--report-sources", "reports_sources", is_flag=True, hidden=True)
@click.pass_obj
def worker(
    invocation: Invocation,
    *,
    queues: list[str],
    concurrency: int | None,
    log_level: str | None,
    log_format: str,
    processes: int | None,
    shutdown_timeout: float | None,
    address: HttpAddress | None,
    until_idle: bool,
    lifeline: int | None,
    reports_sources: bool,
) -> None:
    """Run the jobs of your app.

    SIGTERM or Ctrl-C stops the worker after its running jobs have finished. A second one returns those jobs to
    their queue and stops the worker at once. No job is lost either way, even if the worker is killed.
    """
    configure_logging(log_level, format=log_format)
    if processes is not None:
        command = worker_command(
            invocation,
            queues=queues,
            concurrency=concurrency,
            log_level=log_level,
            log_format=log_format,
            shutdown_timeout=shutdown_timeout,
            until_idle=until_idle,
        )
        sys.exit(asyncio.run(_supervise(command, processes, until_idle=until_idle, address=address)))
    parent = None if lifeline is None else ParentConnection(lifeline)
    run_worker(
        invocation,
        parent=parent,
        reports_sources=reports_sources,
        until_idle=until_idle,
        address=address,
        queues=queues,
        concurrency=concurrency,
        shutdown_timeout=shutdown_timeout,
    )


def run_worker(
    invocation: Invocation,
    *,
    parent: ParentConnection | None,
    reports_sources: bool,
    until_idle: bool,
    address: HttpAddress | None = None,
    **options: Any,
) -> None:
    """Run a worker in this process until a signal stops it or its parent process dies."""
    app = invocation.app
    if parent is not None and reports_sources:
        report_sources(parent)
    check_schema(app.store)

    async def run() -> bool:
        running = Worker(app, **options)
        with served(running, address):
            if parent is not None:
                _obey(parent, running)
            await running.run(install_signals=parent is None, until_idle=until_idle)
        _leave_within(running.seconds_left, MUST_RESTART if running.must_restart else 0)
        return running.must_restart

    if asyncio.run(run(), debug=reports_sources):
        sys.exit(MUST_RESTART)


def _leave_within(seconds: float, code: int) -> None:
    """End this process even if a handler's thread, or a coroutine that ignores its cancellation, keeps it alive."""

    def leave() -> None:
        with contextlib.suppress(Exception):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)

    Watcher().enter(max(LEAST_SECONDS, seconds), leave, None)


def _obey(parent: ParentConnection, running: Worker) -> None:
    """Stop the worker on a signal, but let only the parent cut the shutdown short.

    Parent and worker both receive a signal that is sent to the whole process group.
    """
    loop = asyncio.get_running_loop()

    def stop() -> None:
        if not running.is_stopping:
            running.stop()

    def hurry() -> None:
        with contextlib.suppress(RuntimeError):  # the event loop is closed, so the worker has already stopped
            loop.call_soon_threadsafe(running.hurry)

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop)
    parent.obey(on_hurry=hurry, shutdown_timeout=running.shutdown_timeout)
    parent.say(f"{READY} {running.shutdown_timeout}")


def worker_command(invocation: Invocation, **options: object) -> list[str]:
    """Build the command line of one worker process."""
    command = [*invocation.command, "worker", *invocation.arguments()]
    for name, value in options.items():
        option = f"--{name.replace('_', '-')}"
        if value is True:
            command.append(option)
        elif isinstance(value, list):
            command += [option, ",".join(value)] if value else []
        elif value is not None and value is not False:
            command += [option, str(value)]
    return command


async def _supervise(command: list[str], processes: int, *, until_idle: bool, address: HttpAddress | None) -> int:
    own = {} if address is None else {n: ["--http", str(address.of_process(n))] for n in range(1, processes + 1)}
    supervisor = Supervisor(command, processes=processes, replaces_finished=not until_idle, own_options=own)
    return await supervisor.run(install_signals=True)
