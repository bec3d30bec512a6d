"""Counts, batches and limits that are not exact."""

from __future__ import annotations

from tests.fault.mutants.planting import SQL, Mutant

COUNTS = "test_counts.py::test_counts_are_exact_at_every_moment_while_workers_are_killed"
FOLDS = "test_counts.py::test_folding_skips_moves_that_another_process_is_folding"
WAITING = "tests/conformance/test_waiting.py::test_queued_and_running_jobs_take_room"
RESTARTED = (
    "tests/conformance/test_batch_races.py::test_a_batch_cannot_become_done_while_an_item_of_it_is_being_restarted"
)

MUTANTS = [
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
        "store/attempts.py",
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
        'for row in (yield Statement("lock_batch", {"id": batch_id})):',
        "for row in rows:",
        f"{RESTARTED}[mariadb]",
    ),
    Mutant(
        "a limit that does not count what is running",
        f"{SQL}/sqlite/limit_usage.sql",
        "wanted.limit_key and state = 'running'",
        "wanted.limit_key and state = 'waiting'",
        f"{WAITING}[sqlite-sync]",
    ),
    Mutant(
        "a claim that counts without a lock",
        "store/limits.py",
        "    yield from lock_stripes(keys.values())\n",
        "",
        "tests/conformance/test_limits.py::test_racing_claims_never_exceed_a_limit[postgres]",
    ),
    Mutant(
        "a newcomer that takes the place of one in line",
        "store/limits.py",
        "is_next = was_unblocked or not usage[name].has_blocked",
        "is_next = True",
        "tests/conformance/test_limits.py::test_a_newcomer_does_not_overtake_those_in_line[sqlite-sync]",
    ),
    Mutant(
        "a sweep that lets nobody through",
        "store/unblocking.py",
        "    through = yield from unblock_next(names, rules, ahead=ahead)\n",
        "    through = 0\n",
        "tests/conformance/test_unblocking.py::test_a_sweep_heals_what_nobody_let_through[sqlite-sync]",
    ),
]
