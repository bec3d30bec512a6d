"""Progress that is not of its attempt."""

from __future__ import annotations

from tests.fault.mutants.planting import SQL, Mutant, on_each

PROGRESS = "tests/conformance/test_progress.py"
REPORTED = "tests/conformance/test_answers.py::test_progress_is_not_stored_of_an_attempt_that_ends_meanwhile"

MUTANTS = [
    *on_each(
        "progress that outlives its attempt",
        "reschedule_jobs",
        {
            "sqlite": "    progress = null,\n",
            "postgres": "    progress = null,\n",
            "mysql": "    job.progress = null,\n",
        },
        f"{PROGRESS}::test_a_rescued_job_has_no_progress[{{}}-sync]",
    ),
    Mutant(
        "progress on MariaDB that an overtaken attempt of the same worker writes",
        f"{SQL}/mysql/renew_leases.sql",
        "\n  and job.attempts = lease.attempt]]",
        "]]",
        f"{PROGRESS}::test_no_progress_is_written_for_an_attempt_that_the_same_worker_superseded[mariadb-sync]",
    ),
    Mutant(
        "progress on PostgreSQL of a request that was answered meanwhile",
        f"{SQL}/postgres/report_progress.sql",
        " and job.attempts = report.attempt - 1",
        "",
        f"{REPORTED}[postgres]",
    ),
    Mutant(
        "progress on MariaDB of a request that was answered meanwhile",
        f"{SQL}/mysql/report_progress.sql",
        " and job.attempts = report.attempt - 1",
        "",
        f"{REPORTED}[mariadb]",
        times=2,
    ),
]
