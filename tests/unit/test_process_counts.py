"""The counts of a process: histogram buckets, copies, and writers in many threads."""

from __future__ import annotations

import os
import threading

from stagepost.database.process_counts import BUCKETS, ProcessCounts


def test_a_duration_belongs_to_the_first_bucket_whose_bound_it_does_not_exceed() -> None:
    counts = ProcessCounts()

    counts.note_attempts([("mail", "completed", seconds) for seconds in (0.0, 0.005, 0.0051, 3600.0, 3600.1)])

    durations = counts.attempts["mail", "completed"]
    assert durations.numbers == (2, 1, *[0] * (len(BUCKETS) - 3), 1, 1)
    assert durations.seconds == 7200.1101


def test_attempts_are_counted_by_task_and_status() -> None:
    counts = ProcessCounts()

    counts.note_attempts([("mail", "completed", 1.0), ("mail", "retrying", 2.0), ("mail", "completed", 3.0)])

    assert {key: sum(durations.numbers) for key, durations in counts.attempts.items()} == {
        ("mail", "completed"): 2,
        ("mail", "retrying"): 1,
    }


def test_no_count_is_lost_when_many_threads_count() -> None:
    counts = ProcessCounts()

    def count() -> None:
        for _ in range(5_000):
            counts.note_write("settle")
            counts.note_submitted({"mail": 2})

    threads = [threading.Thread(target=count) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert counts.writes == {"settle": 20_000}
    assert counts.submitted == {"mail": 40_000}


def test_what_was_read_does_not_change_any_more() -> None:
    counts = ProcessCounts()
    counts.note_retry("mail")
    counts.note_dead_letter("mail")
    read = counts.retries, counts.dead_letters

    counts.note_retry("mail")
    counts.note_dead_letter("mail")

    assert read == ({"mail": 1}, {"mail": 1})


def test_a_forked_child_starts_at_zero() -> None:
    counts = ProcessCounts()
    counts.note_retry("mail")

    child = os.fork()
    if child == 0:
        os._exit(0 if counts.retries == {} else 1)

    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert counts.retries == {"mail": 1}
