"""Events that are missing, or that a reader skips."""

from __future__ import annotations

from tests.fault.mutants.planting import SQL, Mutant

EVENTS = "tests/conformance/test_events.py"

MUTANTS = [
    Mutant(
        "events that are numbered in the order of writing",
        "store/events.py",
        "numbered.append((row_id, last + 1))",
        "numbered.append((row_id, row_id))",
        f"{EVENTS}::test_no_reader_skips_an_event_that_is_committed_late[postgres]",
    ),
    Mutant(
        "an end on PostgreSQL whose event counts jobs that had ended before",
        f"{SQL}/postgres/end_jobs.sql",
        "    from kept\n    left join stagepost_event_level",
        "    from ended as kept\n    left join stagepost_event_level",
        f"{EVENTS}::test_a_job_that_was_created_again_while_it_ended_has_one_event[postgres]",
    ),
    Mutant(
        "a reader that is not told what was deleted",
        "store/events.py",
        "if after < pruned and",
        "if after < 0 and",
        f"{EVENTS}::test_old_events_are_deleted_in_order_and_readers_are_told[sqlite-sync]",
    ),
    Mutant(
        "a cursor that skips the rest of a group",
        f"{SQL}/common/read_events.sql",
        "where earlier.position <= :first), 0)",
        "where earlier.position > :first), 0)",
        f"{EVENTS}::test_a_cursor_may_stop_inside_a_group[sqlite-sync-1]",
    ),
    Mutant(
        "an end on SQLite that has no event",
        f"{SQL}/sqlite/end_jobs.sql",
        "where coalesce(own.level, general.level, 'final') <> 'off'",
        "where coalesce(own.level, general.level, 'final') = 'off'",
        "test_kill_points.py::test_a_worker_that_dies_around_a_commit_costs_an_attempt_and_nothing_else[sqlite]",
        seconds=60,
    ),
]
