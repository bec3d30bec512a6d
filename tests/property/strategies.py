"""What the machine may draw: requests, outcomes, and existing jobs."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from hypothesis import strategies as st

from stagepost.model.job import OnConflict
from stagepost.model.outcome import Abandoned, Completed, Crashed, Failed, Outcome, Refused, Released, Snoozed

OWNERS = ("ada", "bob")
QUEUES = ("mail", "films")
TASKS = ("send", "cut")


def job_id_of(number: int) -> str:
    """Ids in another order than that of asking, so that ties are seen to be broken by id."""
    return f"{number * 40503 % 65536:08x}-0000-7000-8000-000000000000"


@st.composite
def wishes(draw: st.DrawFn) -> dict[str, Any]:
    """What one request asks for, but its id and arguments."""
    unique_key = draw(st.sampled_from([None, None, None, "u1", "u2"]))
    limit_key = draw(st.sampled_from([None, None, None, "l1", "l2"]))
    return {
        "task_name": draw(st.sampled_from(TASKS)),
        "queue_name": draw(st.sampled_from(QUEUES)),
        "priority": draw(st.sampled_from([0, 0, 3, -3])),
        "max_attempts": draw(st.integers(1, 3)),
        "delay_us": draw(st.sampled_from([0, 0, 0, 0, 5_000_000, 40_000_000])),
        "unique_key": unique_key,
        "unique_for_us": draw(st.sampled_from([None, 20_000_000])) if unique_key else None,
        "on_conflict": draw(st.sampled_from(OnConflict)) if unique_key else OnConflict.KEEP,
        "limit_key": limit_key,
        "limit": draw(st.integers(1, 2)) if limit_key else None,
    }


OUTCOMES: st.SearchStrategy[Outcome] = st.sampled_from(
    [
        Completed('{"sent":1}'),
        Completed(None),
        Failed("OSError: host 17 is down", timedelta(0)),
        Failed("OSError: host 18 is down", timedelta(seconds=10)),
        Refused("ValueError: no such address"),
        Snoozed(timedelta(seconds=5)),
        Abandoned("asked to stop"),
        Released(),
        Crashed("signal 11"),
    ]
)
ANY = st.integers(0, 12)
"""Which of the things there are, counted from the newest."""
ATTEMPTS = st.tuples(st.sampled_from(["held", "held", "overtaken", "any"]), ANY)
"""Which of the attempts that hold their lease, of those whose job is run again by now, or of all there ever were."""
JOBS = st.tuples(st.sampled_from(["running", "live", "any"]), ANY)
MARKS = st.none() | st.dictionaries(st.sampled_from([3, 0, -3]), st.sampled_from([-60, -1, 0]), min_size=1)
"""Where a claim starts: per priority, how many seconds from now."""
