"""Faults planted in the product itself, and the tests that must notice: a suite that cannot fail shows nothing."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

SOURCE = Path(__file__).parents[2] / "src" / "stagepost"
SQL = "store/sql"

FENCES = "test_fences.py::test_an_attempt_that_was_overtaken_can_write_nothing"
OWNERS = "test_fences.py::test_another_owner_can_write_nothing_of_an_attempt"
RACES = "test_fences.py::test_claims_that_race_never_share_a_job"
COUNTS = "test_counts.py::test_counts_are_exact_at_every_moment_while_workers_are_killed"
FOLDS = "test_counts.py::test_folders_that_race_lose_and_double_nothing"
SWEEP = "test_sweep.py::test_a_job_survives_an_error_at_every_call_of_its_life"
RESTARTED = (
    "tests/conformance/test_batch_races.py::test_a_batch_cannot_become_done_while_an_item_of_it_is_being_restarted"
)
MESSAGES = "test_rabbitmq_messages.py::test"
UNANSWERED = "test_a_request_that_is_sent_often_enough_and_never_answered_makes_a_dead_letter"
LOST = "test_lost_commits.py::test_an_operation_whose_commit_reply_is_lost_happens_once"


@dataclass(frozen=True)
class Mutant:
    """A small change for the worse, and the test that fails with it."""

    name: str
    file: str
    old: str
    new: str
    killer: str
    times: int = 1
    """How often the old text is there; all of them are replaced."""

    @property
    def test(self) -> str:
        """The killer as pytest names it; those of this folder are written without it."""
        return self.killer if self.killer.startswith("tests/") else f"tests/fault/{self.killer}"


def planted(mutant: Mutant, folder: Path) -> Path:
    """Copy the product and plant a mutant in the copy; returns the folder to import it from."""
    # With what is compiled: of all files only the mutant's own is newer than that.
    shutil.copytree(SOURCE, folder / "stagepost")
    path = folder / "stagepost" / mutant.file
    text = path.read_text()
    found = text.count(mutant.old)
    if found != mutant.times:
        raise LookupError(
            f"mutant {mutant.name!r}: its text is {found} times in {mutant.file}, not {mutant.times}. "
            f"The code has changed: plant the same fault in what is there now."
        )
    path.write_text(text.replace(mutant.old, mutant.new))
    return folder


def _without_attempt(dialect: str, pytest_name: str, guards: dict[str, tuple[str, str, int]]) -> list[Mutant]:
    return [
        Mutant(
            f"{statement} of {dialect} without the attempt", f"{SQL}/{dialect}/{statement}.sql", old, new,
            f"{FENCES}[{pytest_name}]", times,
        )
        for statement, (old, new, times) in guards.items()
    ]  # fmt: skip


CLAIMING = """)
update stagepost_job as job
set state = 'running',
    attempts = job.attempts + 1,
    locked_by = :owner,
    lease_until = :now + :lease_us,
    started_at = :now,
    cancel_requested_at = null,
    updated_at = :now
where job."""
"""What a claim on PostgreSQL does between locking and finding again."""

MUTANTS = [
    *_without_attempt(
        "sqlite",
        "sqlite",
        {
            "end_jobs": ("where job.attempts = change.value ->> 'attempt' and", "where", 1),
            "reschedule_jobs": ("and attempts = change.value ->> 'attempt'", "", 1),
            "renew_leases": ("and attempts = lease.value ->> 'attempt'", "", 1),
        },
    ),
    *_without_attempt(
        "postgres",
        "postgres",
        {
            "end_jobs": ("and job.attempts = change.attempt", "", 1),
            "reschedule_jobs": ("and job.attempts = change.attempt", "", 1),
            "renew_leases": ("where job.attempts = lease.attempt and", "where", 1),
        },
    ),
    *_without_attempt(
        "mysql",
        "mariadb",
        {
            "end_jobs": ("where job.attempts = change_.attempt and", "where", 4),
            "reschedule_jobs": ("where job.attempts = change_.attempt and", "where", 2),
            "renew_leases": ("where job.attempts = lease.attempt and", "where", 1),
        },
    ),
    Mutant(
        "ending a job without being its owner",
        f"{SQL}/sqlite/end_jobs.sql",
        "and coalesce(job.locked_by, '') = change.value ->> 'owner'",
        "",
        f"{OWNERS}[sqlite]",
    ),
    Mutant(
        "renewing a lease without being its owner",
        f"{SQL}/postgres/renew_leases.sql",
        "and job.locked_by = :owner",
        "",
        f"{OWNERS}[postgres]",
    ),
    Mutant(
        "a claim that does not count the attempt",
        f"{SQL}/sqlite/claim_jobs.sql",
        "attempts = attempts + 1",
        "attempts = attempts",
        f"{FENCES}[sqlite]",
    ),
    Mutant(
        "a claim on PostgreSQL that locks nothing",
        f"{SQL}/postgres/claim_jobs.sql",
        f"    for update skip locked\n{CLAIMING}ctid = any (array(select place from picked))\n",
        # By id: newer releases of PostgreSQL change no row that has moved since it was found by its place.
        f"{CLAIMING}id in (select id from stagepost_job where ctid = any (array(select place from picked)))\n",
        f"{RACES}[postgres]",
    ),
    Mutant(
        "a claim on MariaDB that locks nothing",
        f"{SQL}/mysql/claim_jobs.sql",
        "for update skip locked\n",
        "",
        f"{RACES}[mariadb]",
    ),
    Mutant(
        "an end on PostgreSQL that is not counted",
        f"{SQL}/postgres/end_jobs.sql",
        "        case when id in (select id from kept) then state end, count(*)\n",
        "        case when id in (select id from kept) then state end, 0\n",
        f"{COUNTS}[postgres]",
        times=2,
    ),
    Mutant(
        "a retry that is not counted",
        "store/leases.py",
        "(queue_name, batch_id, JobState.RUNNING, became) for _, _, queue_name, batch_id, became in rows",
        "()",
        f"{COUNTS}[sqlite]",
    ),
    Mutant(
        "a fold on MariaDB that does not lock what it folds",
        f"{SQL}/mysql/fold_moves.sql",
        "for update skip locked\n",
        "",
        f"{FOLDS}[mariadb]",
    ),
    Mutant(
        "a conclusion that locks no batch",
        f"{SQL}/common/lock_batch.sql",
        "for update\n",
        "",
        f"{RESTARTED}[postgres]",
    ),
    Mutant(
        "a restart that does not lock the batches of its jobs",
        "store/batch_locks.py",
        '        yield Statement("lock_batch", {"id": batch_id})\n',
        "",
        f"{RESTARTED}[mariadb]",
    ),
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
        "test_fences.py::test_a_job_is_parked_at_the_last_crash_it_may_have_and_not_before[sqlite]",
    ),
    Mutant(
        "a limit that does not count what is running",
        f"{SQL}/common/limit_usage.sql",
        "state in ('queued', 'running')",
        "state in ('queued')",
        "test_kill_loop.py::test_no_limit_is_exceeded_while_workers_are_killed[sqlite-25]",
    ),
    Mutant(
        "a commit whose failure nobody hears of",
        "store/store.py",
        "                if is_begun:\n                    connection.commit()\n",
        "                with contextlib.suppress(Exception):\n                    connection.commit()\n",
        f"{SWEEP}[sqlite-connection lost]",
    ),
    Mutant(
        "an error that commits instead of rolling back",
        "store/store.py",
        "                        connection.rollback()\n",
        "                        connection.commit()\n",
        f"{SWEEP}[sqlite-conflict]",
    ),
    Mutant(
        "a handler's transaction that commits after an error",
        "store/store.py",
        "self._in_time(connection):\n                    connection.rollback()\n",
        "self._in_time(connection):\n                    connection.commit()\n",
        "test_conflicts.py::test_a_lock_timeout_in_a_handlers_transaction_undoes_all_of_it[mariadb]",
    ),
    Mutant(
        "a dead connection that is replaced by a dead neighbour",
        "store/store.py",
        "                    self.pool.close_idle()\n",
        "",
        "test_connections.py::test_connections_that_were_ended_while_idle_are_replaced_without_an_error[app-postgres]",
    ),
    Mutant(
        "a failed rollback that hides what went wrong before it",
        "store/store.py",
        "                with contextlib.suppress(Exception), self._in_time(connection):\n",
        "                with self._in_time(connection):\n",
        "test_connections.py::test_the_error_of_a_body_is_raised_as_it_is_though_its_connection_died[mariadb]",
    ),
    Mutant(
        "a broken connection that is lent again",
        "store/pool.py",
        "            if is_sound and not self._closed:\n",
        "            if not self._closed:\n",
        f"{SWEEP}[sqlite-connection lost]",
    ),
    Mutant(
        "claims whose reply was lost are forgotten",
        "worker/claimer.py",
        "        self._may_have_strays = True\n",
        "        self._may_have_strays = False\n",
        f"{SWEEP}[sqlite-connection lost]",
    ),
    Mutant(
        "an enqueue that is repeated after its job ended",
        f"{SQL}/postgres/insert_job.sql",
        "    where not exists (select 1 from stagepost_job_history where id = :id::uuid)\n",
        "",
        f"{LOST}[lose_enqueue_of_a_job_that_ended_meanwhile-postgres]",
    ),
    Mutant(
        "a completion whose reply was lost counts as a lost lease",
        "store/leases.py",
        "    if missing and ended_counts:\n",
        "    if missing and not missing:\n",
        f"{LOST}[lose_completion-postgres]",
    ),
    Mutant(
        "unique keys taken in any order",
        "store/jobs.py",
        'key=lambda job: job.unique_key or ""',
        "key=lambda job: 0",
        "test_conflicts.py::test_unique_keys_are_taken_in_one_order_whatever_the_order_they_are_given_in[postgres]",
    ),
    Mutant(
        "a lost lease that nobody is told of",
        "client/context.py",
        "        if not all(held.values()):\n",
        "        if not held:\n",
        "test_zombies.py::test_nothing_of_a_worker_that_overslept_its_lease_is_accepted[sqlite]",
    ),
    Mutant(
        "leases renewed on the event loop",
        "worker/lease_keeper.py",
        "                self.run_once()\n",
        "                self._loop.call_soon_threadsafe(self.run_once)\n",
        "test_bad_handlers.py::"
        "test_a_blocked_event_loop_keeps_its_lease_and_a_held_interpreter_loses_it_safely[postgres]",
    ),
    Mutant(
        "handlers that go on when their lease cannot be renewed",
        "worker/lease_keeper.py",
        "            if now > flight.lease_ends - self._margin:\n",
        "            if now < 0:\n",
        "test_connections.py::"
        "test_a_worker_cut_off_from_its_database_stops_its_handlers_before_another_can_start_them[postgres]",
    ),
    Mutant(
        "the worker's clock instead of the database's",
        "clock.py",
        "    def instant(self) -> int | None:\n        return None\n",
        "    def instant(self) -> int | None:\n        return time.time_ns() // 1000\n",
        "test_time.py::test_workers_whose_clocks_are_wrong_and_jump_keep_leases_and_delays[postgres]",
    ),
    Mutant(
        "calls without a deadline",
        "store/deadline.py",
        "                    abort()\n",
        "                    continue\n",
        "test_fences.py::test_no_call_outlives_its_deadline[postgres]",
    ),
    Mutant(
        "connections shared with a forked child",
        "store/pool.py",
        "        self._idle, self._open = [], 0\n",
        "",
        "test_forks_and_cancels.py::test_a_forked_child_has_sessions_of_its_own[postgres]",
    ),
    Mutant(
        "a slot that stays taken after its thread came back",
        "worker/threads.py",
        "                self._on_freed()\n",
        "                pass\n",
        "test_bad_handlers.py::test_a_slot_that_was_stuck_is_used_again[sqlite]",
    ),
    Mutant(
        "messages that are acknowledged before their job is settled",
        "worker/receiver.py",
        "            self._held[flight.fence] = named.pop(flight.fence)\n",
        "            self.consumer.ack(named.pop(flight.fence))\n",
        f"{MESSAGES}_a_worker_killed_with_messages_in_its_hands_loses_none[sqlite]",
    ),
    Mutant(
        "messages that count as sent without a confirm",
        "transport/rabbitmq/publisher.py",
        "            batch.decide(place, Verdict.RETURNED)  # its confirm follows\n",
        "            batch.decide(place, Verdict.CONFIRMED)\n",
        f"{MESSAGES}_a_queue_that_is_deleted_or_unbound_is_made_anew[sqlite]",
    ),
    *(
        Mutant(
            f"a claim of {dialect} that does not look at the attempt a message names",
            f"{SQL}/{dialect}/claim_delivered.sql",
            old,
            "",
            f"{MESSAGES}_deliveries_that_come_again_and_ids_of_ended_jobs_run_nothing[{pytest_name}]",
        )
        for dialect, pytest_name, old in (
            ("sqlite", "sqlite", " and job.attempts = (delivery.value ->> 'attempt') - 1"),
            ("postgres", "postgres", " and job.attempts = delivery.attempt - 1"),
            ("mysql", "mariadb", " and job.attempts = delivery.attempt - 1"),
        )
    ),
    Mutant(
        "a reconciler that does not look how many messages wait",
        "transport/rabbitmq/admin.py",
        "Depth(answer.message_count, answer.consumer_count)",
        "Depth(0, answer.consumer_count)",
        f"{MESSAGES}_work_that_waits_for_a_slow_worker_is_not_sent_again[mariadb]",
    ),
    Mutant(
        "a reconciler that forgets the messages in workers' hands",
        "upkeep/reconciler.py",
        "    elif patience is None and depth.consumers <= heard:\n",
        "    elif patience is None and depth.consumers >= 0:\n",
        f"{MESSAGES}_messages_with_a_worker_that_stands_still_are_not_sent_again[sqlite]",
    ),
    *(
        Mutant(
            f"a silent program that nobody counts on {dialect}",
            f"{SQL}/{dialect}/put_back_jobs.sql",
            old,
            "",
            f"tests/conformance/test_losing.py::{UNANSWERED}[{pytest_name}-sync]",
        )
        for dialect, pytest_name, old in (
            ("sqlite", "sqlite", "    crashes = crashes + :crashes,\n"),
            ("postgres", "postgres", "    crashes = job.crashes + :crashes,\n"),
            ("mysql", "mariadb", "    job.crashes = job.crashes + :crashes,\n"),
        )
    ),
    Mutant(
        "answers that do not keep a program's queue from being empty",
        f"{SQL}/common/note_empty.sql",
        "        when :has_answers = 1 and patience_us is not null then null\n",
        "",
        "tests/conformance/test_channels.py::test_a_programs_queue_is_not_empty_while_answers_wait[postgres-sync]",
    ),
    Mutant(
        "a mark of SQLite that hides a job which was put back",
        f"{SQL}/sqlite/mark_sent.sql",
        "  and updated_at <= :read_at\n",
        "  and :read_at is not null\n",
        "tests/conformance/test_losing.py::test_a_mark_that_comes_after_the_job_was_put_back_is_refused[sqlite-sync]",
    ),
]
