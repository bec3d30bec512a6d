"""Transactions, connections and repeated calls that go wrong."""

from __future__ import annotations

from tests.fault.mutants.planting import SQL, Mutant

SWEEP = "test_sweep.py::test_a_job_survives_an_error_at_every_call_of_its_life"
LOST = "test_lost_commits.py::test_an_operation_whose_commit_reply_is_lost_happens_once"

MUTANTS = [
    Mutant(
        "a commit whose failure nobody hears of",
        "database/store.py",
        "                if is_begun:\n                    connection.commit()\n",
        "                with contextlib.suppress(Exception):\n                    connection.commit()\n",
        f"{SWEEP}[sqlite-connection lost]",
    ),
    Mutant(
        "an error that commits instead of rolling back",
        "database/store.py",
        "                        connection.rollback()\n",
        "                        connection.commit()\n",
        "tests/conformance/test_single_statements.py::"
        "test_an_operation_of_one_statement_shares_the_transaction_of_the_operation_that_runs_it[sqlite]",
    ),
    Mutant(
        "a handler's transaction that commits after an error",
        "database/store.py",
        "self._in_time(connection):\n                    connection.rollback()\n",
        "self._in_time(connection):\n                    connection.commit()\n",
        "test_conflicts.py::test_a_lock_timeout_in_a_handlers_transaction_undoes_all_of_it[mariadb]",
    ),
    Mutant(
        "a dead connection that is replaced by a dead neighbour",
        "database/store.py",
        "                    self.pool.close_idle()\n",
        "",
        "test_connections.py::test_connections_that_were_ended_while_idle_are_replaced_without_an_error[app-postgres]",
    ),
    Mutant(
        "a failed rollback that hides what went wrong before it",
        "database/store.py",
        "                with contextlib.suppress(Exception), self._in_time(connection):\n",
        "                with self._in_time(connection):\n",
        "test_connections.py::test_the_error_of_a_body_is_raised_as_it_is_though_its_connection_died[mariadb]",
    ),
    Mutant(
        "a broken connection that is lent again",
        "database/pool.py",
        "            if is_sound and not self._closed:\n",
        "            if not self._closed:\n",
        f"{SWEEP}[sqlite-connection lost]",
    ),
    Mutant(
        "an enqueue that is repeated after its job ended",
        f"{SQL}/postgres/insert_job.sql",
        "    where not exists (select 1 from stagepost_job_history where id = :id::uuid)\n",
        "",
        "tests/conformance/test_enqueue.py::test_a_repeated_request_does_not_run_a_job_again_that_has_ended[postgres-sync]",
    ),
    Mutant(
        "an enqueue that is repeated while its job ends",
        "store/jobs.py",
        "    if doubled:\n",
        "    if not doubled and doubled:\n",
        "tests/conformance/test_enqueue.py::"
        "test_a_repeated_request_does_not_recreate_a_job_that_ends_concurrently[postgres-True-1]",
    ),
    Mutant(
        "a completion whose reply was lost counts as a lost lease",
        "store/settling.py",
        "    if ended_counts:\n",
        "    if ended_counts is None:\n",
        f"{LOST}[lose_completion-postgres]",
    ),
    Mutant(
        "a second statement after one that has committed by itself",
        "database/runner.py",
        "            if is_committed:\n",
        "            if is_committed and not steps:\n",
        "tests/conformance/test_single_statements.py::"
        "test_a_second_statement_after_one_that_commits_by_itself_is_refused[postgres]",
    ),
    Mutant(
        "an operation that starts again although its only statement has committed",
        "database/store.py",
        "                failure = error\n",
        "                failure, current = error, operation\n",
        "tests/conformance/test_single_statements.py::"
        "test_deliveries_that_were_leased_are_returned_although_the_others_are_looked_up_twice[postgres]",
    ),
    Mutant(
        "unique keys taken in any order",
        "store/jobs.py",
        'key=lambda job: job.unique_key or ""',
        "key=lambda job: 0",
        "test_conflicts.py::test_unique_keys_are_taken_in_one_order_whatever_the_order_they_are_given_in[hashjoin-postgres]",
    ),
    Mutant(
        "calls without a deadline",
        "database/deadline.py",
        "                for token in [token for token, (deadline, _, _) in self._calls.items() if deadline <= now]:\n",
        "                for token in ():\n",
        "test_fences.py::test_no_call_outlives_its_deadline[postgres]",
    ),
    Mutant(
        "connections shared with a forked child",
        "database/pool.py",
        "        self._idle, self._open = [], 0\n",
        "",
        "test_forks_and_cancels.py::test_a_forked_child_has_sessions_of_its_own[postgres]",
    ),
]
