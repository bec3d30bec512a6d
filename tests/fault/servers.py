"""Private servers for fault tests; the shared ones belong to everybody on the machine."""

from __future__ import annotations

import contextlib
import signal
from typing import Literal

import psutil

from tests.services import mariadb
from tests.services.mariadb import MariadbInstance
from tests.services.postgres import PostgresInstance
from tests.services.processes import STOP_SECONDS, wait_until

StopMode = Literal["smart", "fast", "immediate"]
STOP_SIGNALS: dict[StopMode, signal.Signals] = {
    "smart": signal.SIGTERM,
    "fast": signal.SIGINT,
    "immediate": signal.SIGQUIT,
}


class PrivatePostgres(PostgresInstance):
    """A PostgreSQL cluster that a test may stop, kill, pause and restart on the same port and data."""

    def stop(self, mode: StopMode = "fast") -> None:
        """Stop as `pg_ctl stop -m mode` does; `smart` waits for clients, so they must have left."""
        self.stop_with(STOP_SIGNALS[mode])

    def restart_immediate(self) -> None:
        """Abort all sessions without a checkpoint, then start with crash recovery."""
        self.stop("immediate")
        self.start()

    def kill_postmaster(self) -> None:
        """SIGKILL the parent only, and wait for its orphans: a start is refused while one lives."""
        orphans = self.tree()[1:]
        self.kill()
        _wait_for_end(orphans)

    def kill_backend(self, pid: int) -> None:
        """SIGKILL one backend, upon which PostgreSQL restarts all of them; waits until it accepts again."""
        backend = self._backend(pid)
        backend.kill()
        # Until its parent has taken notice, it accepts connections that it is about to end.
        wait_until(lambda: not backend.is_running(), f"the postmaster to miss backend {pid}", seconds=STOP_SECONDS)
        wait_until(self.accepts_connections, f"recovery after the kill of backend {pid}", seconds=60)

    def terminate_backend(self, pid: int) -> None:
        """End one session as `pg_terminate_backend` does; the others go on."""
        backend = self._backend(pid)
        backend.terminate()
        _wait_for_end([backend])

    def accepts_connections(self) -> bool:
        import psycopg

        with contextlib.suppress(psycopg.OperationalError):
            psycopg.connect(self.url, connect_timeout=2).close()
            return True
        return False

    def _backend(self, pid: int) -> psutil.Process:
        for process in self.tree()[1:]:
            if process.pid == pid:
                return process
        raise LookupError(f"process {pid} is no backend of the private PostgreSQL on port {self.port}")


class PrivateMariaDB(MariadbInstance):
    """A MariaDB server that a test may stop, kill, pause and restart on the same port and data."""

    def restart(self) -> None:
        """Stop in order, then start."""
        self.stop()
        self.start()

    def restart_killed(self) -> None:
        """SIGKILL, then start with crash recovery."""
        self.kill()
        self.start()

    def terminate_connection(self, connection_id: int) -> None:
        """End one session as `KILL` does; the others go on."""
        with contextlib.closing(mariadb.connect(self.url)) as connection, connection.cursor() as cursor:
            mariadb.kill_connection(cursor, connection_id)


def _wait_for_end(processes: list[psutil.Process]) -> None:
    pids = [process.pid for process in processes]
    wait_until(lambda: all(map(_has_ended, processes)), f"the end of processes {pids}", seconds=STOP_SECONDS)


def _has_ended(process: psutil.Process) -> bool:
    """Gone, or only its exit code is left for a parent that does not ask."""
    with contextlib.suppress(psutil.NoSuchProcess):
        return process.status() == psutil.STATUS_ZOMBIE
    return True
