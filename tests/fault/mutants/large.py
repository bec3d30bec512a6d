"""Groups that are bounded in number only, and statements that no server takes."""

from __future__ import annotations

from tests.fault.mutants.planting import Mutant

LARGE = "test_large_values.py"
PAYLOADS = "tests/acceptance/test_large_payloads.py"

MUTANTS = [
    Mutant(
        "rows that are written by one statement, whatever their size",
        "database/capacity.py",
        "    if needed <= most_bytes:\n",
        "    if needed <= most_bytes or True:\n",
        f"{LARGE}::test_results_and_errors_that_are_too_large_together_are_all_written",
    ),
    Mutant(
        "statements that are sent although the server does not take them",
        "database/connection.py",
        "                raise ValueTooLarge(len(text), self.most_bytes)\n",
        "                pass\n",
        f"{LARGE}::test_arguments_too_large_for_any_statement_are_an_error_at_the_call_and_nothing_is_stored",
    ),
    Mutant(
        "callers' statements that are sent although the server does not take them",
        "database/capacity.py",
        "        if size + MARGIN_BYTES > limit:\n",
        "        if size < 0:\n",
        f"{LARGE}::test_too_large_arguments_in_a_callers_transaction_are_an_error_and_the_connection_stays_usable",
    ),
    Mutant(
        "jobs leased ahead, however large they are",
        "worker/pace.py",
        "    return min(jobs, max(free, fitting))\n",
        "    return jobs\n",
        f"{PAYLOADS}::test_a_worker_holds_no_more_bytes_than_its_bound[1000-5000]",
    ),
    Mutant(
        "payloads that count as held after their job has ended",
        "worker/leased_attempts.py",
        "                    self.payload_bytes -= len(attempt.job.payload)\n",
        "                    pass\n",
        f"{PAYLOADS}::test_a_worker_holds_no_more_bytes_than_its_bound[1000-5000]",
    ),
    Mutant(
        "messages that are published together, however large they are",
        "upkeep/relay.py",
        "most_bytes=MOST_BYTES // 2",
        "most_bytes=2**40",
        f"{PAYLOADS}::test_unconfirmed_requests_stay_within_their_bound_in_bytes",
    ),
    Mutant(
        "a group of outcomes that fails and is repeated whole",
        "worker/finisher.py",
        "        self._most = max(1, len(group) // 2)\n",
        "",
        "tests/acceptance/test_finisher.py::test_a_group_lost_with_its_connection_is_repeated_in_parts",
    ),
]
