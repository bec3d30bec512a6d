"""Leases that do not hold, and fences that let others through."""

from __future__ import annotations

from tests.fault.mutants.planting import SQL, Mutant

FENCES = "test_fences.py::test_a_superseded_attempt_can_write_nothing"
OWNERS = "test_fences.py::test_another_owner_can_write_nothing_of_an_attempt"
RACES = "test_fences.py::test_a_claim_skips_jobs_that_another_has_claimed_but_not_committed"


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
    started_at = case when job.crashes < :suspect_crashes then :now end,
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
            "end_jobs": ("where job.attempts = change_.attempt and", "where", 3),
            "reschedule_jobs": ("where job.attempts = change_.attempt and", "where", 2),
            "renew_leases": ("where job.attempts = lease.attempt and", "where", 1),
        },
    ),
    Mutant(
        "ending jobs that end alike without the attempt",
        f"{SQL}/sqlite/end_jobs.sql",
        "where job.attempts = :like ->> 'attempt' and",
        "where",
        "tests/conformance/test_settle.py::test_jobs_that_end_alike_end_as_each_would_alone[sqlite-sync-Nothing]",
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
]
