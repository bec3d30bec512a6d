"""The invariants that every fault must leave intact, one function each; row numbers as in the fault list."""

from __future__ import annotations

from collections import Counter as Tally
from collections.abc import Callable, Iterator
from itertools import islice

from stagepost.model.lifecycle import FINAL
from stagepost.model.outcome import CRASHES_ALLOWED
from tests.fault.records import Evidence
from tests.fault.samples import JobRow

EFFECT, START = "effect", "start"
TRANSACTIONAL = "transfer"
"""Tasks whose names begin so write the ledger in the transaction that ends their job."""
NOTING = "note"
"""Tasks whose names begin so write to the sink, outside any transaction."""
MOST_SHOWN = 20

Offences = Iterator[str]


def i1_accepted_jobs_ended(evidence: Evidence) -> Offences:
    """Every confirmed job exists and has ended."""
    for job_id in sorted(evidence.accepted - evidence.jobs.keys()):
        yield f"{job_id} was accepted and is gone"
    for job in evidence.jobs.values():
        if job.state not in FINAL:
            yield f"{job.id} ({job.task}) is still {job.state}, attempt {job.attempt}, crashes {job.crashes}"


def i2_effects_happened_once(evidence: Evidence) -> Offences:
    """A completed job has one effect in the ledger, by the attempt that completed it; any other job has none."""
    effects: dict[str, list[int]] = {}
    for job_id, attempt in evidence.ledger:
        effects.setdefault(job_id, []).append(attempt)
    for job in _named(evidence, TRANSACTIONAL):
        expected = [job.attempt] if job.state == "completed" else []
        if (found := effects.pop(job.id, [])) != expected:
            yield f"{job.id} ({job.task}) is {job.state} by attempt {job.attempt}, its effects are by {found}"
    for job_id, attempts in effects.items():
        yield f"{job_id} has effects by attempts {attempts} and is no such job"


def i3_outside_effects_happened(evidence: Evidence) -> Offences:
    """A completed job reached the sink, and at most once per attempt."""
    reached = Tally((note.job_id, note.attempt) for note in evidence.notes if note.what == EFFECT)
    jobs = Tally(job_id for job_id, _ in reached)
    for (job_id, attempt), times in reached.items():
        if times > 1:
            yield f"{job_id} reached the sink {times} times in attempt {attempt}"
    for job in _named(evidence, NOTING):
        if job.state == "completed" and not jobs[job.id]:
            yield f"{job.id} completed and never reached the sink"
        if jobs[job.id] > job.attempt:
            yield f"{job.id} reached the sink {jobs[job.id]} times in {job.attempt} attempts"


def i4_attempts_only_grow(evidence: Evidence) -> Offences:
    """An attempt is started once, by one owner; nothing of an older or foreign one was accepted."""
    starters: dict[tuple[str, int], tuple[str, ...]] = {}
    for note in evidence.notes:
        if note.what == START:
            attempt_started = note.job_id, note.attempt
            starters[attempt_started] = (*starters.get(attempt_started, ()), note.owner)
    for (job_id, attempt), owners in starters.items():
        if len(owners) > 1:
            yield f"{job_id}: attempt {attempt} was started {len(owners)} times, by {sorted(set(owners))}"
    for job in evidence.jobs.values():
        began = starters.get((job.id, job.attempt))
        if job.state == "completed" and began and began[0] != job.owner:
            yield f"{job.id}: attempt {job.attempt} was started by {began[0]} and completed by {job.owner}"
    for job_id, attempt in evidence.failures:
        job_found = evidence.jobs.get(job_id)
        if job_found is not None and attempt > job_found.attempt:
            yield f"{job_id}: a failure of attempt {attempt} is recorded, the job is at {job_found.attempt}"
    for job_id, offence in evidence.observed.shrunk.items():
        yield f"{job_id}: {offence}"


def i5_nothing_hangs(evidence: Evidence) -> Offences:
    """No job runs on after its lease and grace, none is queued for long, in any sample."""
    for job_id, (late_us, sample) in evidence.observed.unleased_us.items():
        if late_us > evidence.grace_us:
            yield f"{job_id} runs {late_us / 1e6:.1f} s after its lease (sample {sample})"
    for job_id, (waited_us, sample) in evidence.observed.queued_us.items():
        if waited_us > evidence.idle_us:
            yield f"{job_id} is queued for {waited_us / 1e6:.1f} s (sample {sample})"


def i6_final_is_final(evidence: Evidence) -> Offences:
    """An ended job does not change, unless an operator's action is on record."""
    for job_id, offence in evidence.observed.altered.items():
        if job_id not in evidence.operated:
            yield f"{job_id} {offence}"


def i7_counters_equal_rows(evidence: Evidence) -> Offences:
    """Every stored count equals the rows it counts, in every sample."""
    for counter in evidence.observed.drifted.values():
        yield f"{counter.name} is stored as {counter.stored}, its rows are {counter.counted}"


def i8_exactly_what_was_asked(evidence: Evidence) -> Offences:
    """No job exists that was not requested, and no two jobs have the same key."""
    fired = {job_id for _, _, job_id in evidence.runs}
    for job_id in sorted(evidence.jobs.keys() - evidence.asked - fired):
        yield f"{job_id} was never asked for"
    keys = Tally(job.key for job in evidence.jobs.values() if job.key is not None)
    for key, times in keys.items():
        if times > 1:
            yield f"key {key} has {times} jobs"


def i9_every_end_is_one_event(evidence: Evidence) -> Offences:
    """An ended job has one event, which says how it ended; one that an operator moved may have more before it."""
    events: dict[str, list[tuple[str, int]]] = {}
    for job_id, state, attempt in evidence.events:
        events.setdefault(job_id, []).append((state, attempt))
    for job in evidence.jobs.values():
        found = events.pop(job.id, [])
        expected = [(job.state, job.attempt)] if job.state in FINAL else []
        if job.id in evidence.operated and expected:
            found = found[-1:]
        if found != expected and not (job.id in evidence.operated and not expected):
            yield f"{job.id} ({job.task}) is {job.state} by attempt {job.attempt}, its events are {found}"
    for job_id in sorted(events.keys() - evidence.operated):
        yield f"{job_id} has events and is no job"


def i11_budgets_are_kept(evidence: Evidence) -> Offences:
    """No job has more failures or crashes than allowed, and every dead letter says why."""
    for job in evidence.jobs.values():
        if job.failures > job.max_attempts:
            yield f"{job.id} failed {job.failures} times, {job.max_attempts} are allowed"
        if job.crashes > CRASHES_ALLOWED:
            yield f"{job.id} crashed {job.crashes} times, {CRASHES_ALLOWED} are allowed"
        if job.state in {"dead_letter", "failed"} and not (job.error and job.reason):
            yield f"{job.id} is {job.state} without a reason"
        if job.state == "dead_letter" and job.failures < job.max_attempts and job.crashes < CRASHES_ALLOWED:
            yield f"{job.id} is a dead letter after {job.failures} failures and {job.crashes} crashes"


def i15_schedules_fire_once(evidence: Evidence) -> Offences:
    """One firing per schedule and due time, one job per firing."""
    for (name, due), times in Tally((name, due) for name, due, _ in evidence.runs).items():
        if times > 1:
            yield f"schedule {name} fired {times} times for {due}"
    for job_id, times in Tally(job_id for _, _, job_id in evidence.runs).items():
        if times > 1:
            yield f"{job_id} stands for {times} firings"
    for name, due, job_id in evidence.runs:
        if job_id not in evidence.jobs:
            yield f"schedule {name} fired for {due}, its job {job_id} is gone"


def i17_limits_are_kept(evidence: Evidence) -> Offences:
    """Never do more jobs of a limit key hold its slots, or more of a queue run, than is allowed."""
    for key, (number, allowed, sample) in evidence.observed.exceeded.items():
        yield f"limit key {key} lets {number} through, {allowed} are allowed (sample {sample})"
    for queue, (number, sample) in evidence.observed.running.items():
        allowed = evidence.queue_limits.get(queue, number)
        if number > allowed:
            yield f"queue {queue} runs {number} jobs, {allowed} are allowed (sample {sample})"


INVARIANTS: dict[str, Callable[[Evidence], Offences]] = {
    "I1": i1_accepted_jobs_ended,
    "I2": i2_effects_happened_once,
    "I3": i3_outside_effects_happened,
    "I4": i4_attempts_only_grow,
    "I5": i5_nothing_hangs,
    "I6": i6_final_is_final,
    "I7": i7_counters_equal_rows,
    "I8": i8_exactly_what_was_asked,
    "I9": i9_every_end_is_one_event,
    "I11": i11_budgets_are_kept,
    "I15": i15_schedules_fire_once,
    "I17": i17_limits_are_kept,
}


def violations(evidence: Evidence) -> dict[str, list[str]]:
    """The first violations of each invariant, and how many more there are."""
    found = {name: list(_shortened(check(evidence))) for name, check in INVARIANTS.items()}
    return {name: offences for name, offences in found.items() if offences}


def verify(evidence: Evidence) -> None:
    """Raise an error with the offenders and the seed that reproduces them."""
    if broken := violations(evidence):
        lines = [f"seed {evidence.seed}: {', '.join(broken)} broken"]
        lines += [f"  {name}: {offence}" for name, offences in broken.items() for offence in offences]
        raise AssertionError("\n".join(lines))


def _shortened(offences: Offences) -> Offences:
    yield from islice(offences, MOST_SHOWN)
    if more := sum(1 for _ in offences):
        yield f"and {more} more"


def _named(evidence: Evidence, beginning: str) -> Iterator[JobRow]:
    return (job for job in evidence.jobs.values() if job.task.startswith(beginning))
