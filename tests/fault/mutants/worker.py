"""Workers that forget jobs, run too long or lose their slots."""

from __future__ import annotations

from tests.fault.mutants.planting import SQL, Mutant

SWEEP = "test_sweep.py::test_a_job_survives_an_error_at_every_call_of_its_life"

MUTANTS = [
    Mutant(
        "a rescue that does not look at leases",
        f"{SQL}/common/lock_expired_leases.sql",
        "lease_until < :now - :grace_us",
        "lease_until is not null and :grace_us is not null",
        "test_fences.py::test_a_lease_is_left_alone_until_its_end_and_its_grace_are_over[sqlite]",
    ),
    Mutant(
        "a rescue that does not count crashes",
        "store/leases.py",
        "        crashes=1,\n",
        "",
        "test_fences.py::test_a_job_becomes_a_dead_letter_at_its_last_allowed_crash_and_not_before[sqlite]",
    ),
    Mutant(
        "a rescue that charges those that had not begun",
        f"{SQL}/common/lock_expired_leases.sql",
        "started_at is not null",
        "1 = 1",
        "tests/acceptance/test_crash_isolation.py::test_a_suspect_in_line_is_not_charged_with_the_death_of_its_worker",
    ),
    Mutant(
        "a claim that begins suspects",
        f"{SQL}/sqlite/claim_jobs.sql",
        "crashes < :suspect_crashes",
        ":suspect_crashes is not null",
        "tests/acceptance/test_crash_isolation.py::test_a_suspect_in_line_is_not_charged_with_the_death_of_its_worker",
    ),
    Mutant(
        "claims whose reply was lost are forgotten",
        "worker/claimer.py",
        "        self.may_have_unknown_leases = True\n",
        "        self.may_have_unknown_leases = False\n",
        f"{SWEEP}[sqlite-connection lost]",
    ),
    Mutant(
        "a lost lease that nobody is told of",
        "client/running.py",
        "        if not all(held.values()):\n",
        "        if not held:\n",
        "test_zombies.py::test_nothing_is_accepted_from_a_worker_that_overslept_its_lease[sqlite]",
    ),
    Mutant(
        "leases renewed on the event loop",
        "worker/lease_keeper.py",
        "                self.run_once()\n",
        "                self._loop.call_soon_threadsafe(self.run_once)\n",
        "test_bad_handlers.py::"
        "test_a_blocked_event_loop_keeps_its_lease_and_a_held_interpreter_loses_it_safely[postgres]",
        seconds=60,
    ),
    Mutant(
        "handlers that go on when their lease cannot be renewed",
        "worker/lease_keeper.py",
        "            if now > attempt.lease_ends - self._margin:\n",
        "            if now < 0:\n",
        "test_connections.py::"
        "test_a_worker_cut_off_from_its_database_stops_its_handlers_before_another_can_start_them[postgres]",
        seconds=120,
    ),
    Mutant(
        "the worker's clock instead of the database's",
        "clock.py",
        "    def instant(self) -> int | None:\n        return None\n",
        "    def instant(self) -> int | None:\n        return time.time_ns() // 1000\n",
        "test_time.py::test_workers_whose_clocks_are_wrong_and_jump_keep_leases_and_delays[postgres]",
        seconds=60,
    ),
    Mutant(
        "a slot that stays taken after its thread came back",
        "worker/threads.py",
        "                self._on_freed()\n",
        "                pass\n",
        "tests/unit/test_threads.py::test_a_thread_left_behind_is_free_as_soon_as_it_returns",
    ),
    Mutant(
        "a supervisor that reaps the process it signals",
        "worker/supervisor.py",
        "                os.kill(self.process.pid, number)\n",
        "                self.process.send_signal(number)\n",
        "tests/acceptance/test_supervisor.py::test_a_process_that_ends_while_it_is_signalled_keeps_its_exit_code",
    ),
    Mutant(
        "a cancel of a worker that reaches its jobs",
        "worker/worker.py",
        "                await asyncio.wait({work})\n",
        "                await work\n",
        "tests/acceptance/test_cancelled_worker.py::"
        "test_a_cancelled_worker_finishes_its_jobs_and_starts_no_more[sqlite]",
    ),
    Mutant(
        "a closing loop that fails the jobs it cancels",
        "worker/executor.py",
        "        if self._is_loop_closing():\n            running",
        "        if False:\n            running",
        "tests/acceptance/test_cancelled_worker.py::"
        "test_a_loop_that_closes_cancels_every_task_and_no_job_is_charged[sqlite-coroutine]",
    ),
    Mutant(
        "a shutdown that waits for a database that hangs",
        "worker/shutdown.py",
        "if (silent > patience.silence and is_late) or writing",
        "if writing",
        "test_hanging_shutdown.py::test_jobs_of_a_worker_that_ended_while_its_database_hung_are_rescued[postgres]",
        seconds=120,
    ),
    Mutant(
        "an abort that leaves calls under way alone",
        "database/async_store.py",
        "        self._deadlines.abort_all()\n",
        "",
        "test_hanging_shutdown.py::test_calls_that_hang_can_be_aborted_and_are_not_tried_again[postgres]",
        seconds=30,
    ),
    Mutant(
        "cancelled jobs that are noticed with the next renewal",
        "worker/lease_keeper.py",
        "        self.stop_cancelled_once(besides=renewed.held if renewed else frozenset())\n",
        "",
        "tests/acceptance/test_cancelling.py::test_a_cancel_in_another_process_is_noticed_between_renewals[sqlite]",
    ),
    Mutant(
        "cancels that nobody in the process hears of",
        "client/worker_waker.py",
        "            self._notifier.notify_stop(tx=tx)\n",
        "            pass\n",
        "tests/acceptance/test_cancelling.py::test_a_cancel_in_the_same_process_is_noticed_at_once[sqlite]",
    ),
]
