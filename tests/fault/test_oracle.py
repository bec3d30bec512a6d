"""The oracle itself: it accepts a sound run and names every planted violation."""

from __future__ import annotations

from collections.abc import Iterable, Sized
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from stagepost.model.identity import new_id
from stagepost.model.lifecycle import FINAL
from tests.fault.backends import Backend
from tests.fault.observations import Observations
from tests.fault.oracle import INVARIANTS, MOST_SHOWN, verify, violations
from tests.fault.records import Evidence, Journal, Note, Sink, gather
from tests.fault.samples import Counter, JobRow, Sample

SOUND = JobRow(
    id="a",
    task="transfer",
    queue="default",
    state="completed",
    attempt=2,
    failures=1,
    crashes=0,
    max_attempts=5,
    key=None,
    limit_key=None,
    limit=None,
    owner="w2",
    lease_left_us=None,
    waited_us=None,
    error=None,
    reason=None,
)
RUNNING = replace(SOUND, state="running", lease_left_us=500_000)
QUEUED = replace(SOUND, state="queued", owner=None, waited_us=1)
LIMITED = replace(SOUND, limit_key="k", limit=1)
TWO_RUNNING = Sample({"a": RUNNING, "b": replace(RUNNING, id="b")})
TWO_OF_A_KEY = Sample(
    {
        "a": replace(LIMITED, state="running", lease_left_us=500_000),
        "b": replace(LIMITED, id="b", state="queued"),
    }
)


def evidence(*jobs: JobRow, samples: Iterable[Sample] = (), **facts: Any) -> Evidence:
    """A sound run of some jobs, but for what the test changes; a last sample shows the jobs as they ended."""
    rows = {job.id: job for job in jobs or [SOUND]}
    sound: dict[str, Any] = {
        "seed": 7,
        "jobs": rows,
        "observed": Observations([*samples, Sample(rows)]),
        "accepted": set(rows),
        "asked": set(rows),
        "ledger": [(job.id, job.attempt) for job in rows.values() if job.state == "completed"],
        "notes": [Note(job.id, job.attempt, "start", str(job.owner), 1) for job in rows.values()],
        "failures": [("a", 1)],
        "events": [(job.id, job.state, job.attempt) for job in rows.values() if job.state in FINAL],
    }
    return Evidence(**(sound | facts))


def test_a_sound_run_has_no_violation() -> None:
    assert violations(evidence()) == {}


@pytest.mark.parametrize(
    ("invariant", "planted"),
    [
        pytest.param("I1", evidence(accepted={"a", "b"}, asked={"a", "b"}), id="an accepted job is gone"),
        pytest.param("I1", evidence(replace(SOUND, state="retrying"), ledger=[]), id="a job has not ended"),
        pytest.param("I9", evidence(events=[]), id="an end has no event"),
        pytest.param("I9", evidence(events=[("a", "completed", 2)] * 2), id="an end has two events"),
        pytest.param("I9", evidence(events=[("a", "completed", 1)]), id="an event is of an older attempt"),
        pytest.param("I9", evidence(events=[("a", "failed", 2)]), id="an event has another state"),
        pytest.param("I2", evidence(ledger=[("a", 2), ("a", 2)]), id="an effect happened twice"),
        pytest.param("I2", evidence(ledger=[]), id="an effect did not happen"),
        pytest.param("I2", evidence(ledger=[("a", 1)]), id="an effect is of an older attempt"),
        pytest.param(
            "I2",
            evidence(replace(SOUND, state="failed", error="e", reason="r"), ledger=[("a", 2)]),
            id="a failed job has an effect",
        ),
        pytest.param("I2", evidence(ledger=[("a", 2), ("z", 1)]), id="an effect is of no job"),
        pytest.param("I3", evidence(replace(SOUND, task="note"), ledger=[]), id="an effect outside is missing"),
        pytest.param(
            "I3",
            evidence(notes=[Note("a", 2, "start", "w2", 1), *[Note("a", 2, "effect", "w2", 1)] * 2]),
            id="an attempt reached the sink twice",
        ),
        pytest.param(
            "I4",
            evidence(notes=[Note("a", 2, "start", "w2", 1), Note("a", 2, "start", "w1", 2)]),
            id="an attempt was started twice",
        ),
        pytest.param(
            "I4", evidence(notes=[Note("a", 2, "start", "w1", 1)]), id="another than the starter completed it"
        ),
        pytest.param("I4", evidence(failures=[("a", 3)]), id="a failure of an attempt that never was"),
        pytest.param(
            "I4",
            evidence(samples=[Sample({"a": replace(RUNNING, attempt=3)})]),
            id="an attempt number shrank",
        ),
        pytest.param(
            "I4",
            evidence(
                samples=[Sample({"a": replace(RUNNING, attempt=number)}, has_ended_jobs=False) for number in (2, 1)]
            ),
            id="an attempt number shrank between two samples of live jobs",
        ),
        pytest.param(
            "I5",
            evidence(samples=[Sample({"a": replace(RUNNING, lease_left_us=left)}) for left in (-15_100_000, -100_000)]),
            id="a job ran on without a lease",
        ),
        pytest.param(
            "I5",
            evidence(samples=[Sample({"a": replace(QUEUED, waited_us=waited)}) for waited in (61_000_000, 1_000_000)]),
            id="a job was left in its queue",
        ),
        pytest.param(
            "I6",
            evidence(samples=[Sample({"a": replace(SOUND, state="dead_letter")})]),
            id="an ended job changed its state",
        ),
        pytest.param("I6", evidence(samples=[Sample({"a": replace(SOUND, owner="w1")})]), id="an ended job changed"),
        pytest.param("I6", evidence(samples=[Sample({"a": SOUND}), Sample({})]), id="an ended job vanished"),
        pytest.param(
            "I6",
            evidence(samples=[Sample({"a": SOUND}), Sample({"a": RUNNING}, has_ended_jobs=False)]),
            id="an ended job ran again",
        ),
        pytest.param(
            "I6",
            evidence(samples=[Sample({"a": replace(SOUND, error="e")}), Sample({}, has_ended_jobs=False)]),
            id="an ended job changed while samples showed only live jobs",
        ),
        pytest.param(
            "I7",
            evidence(samples=[Sample({}, (Counter("batch 1", 3, number),)) for number in (3, 2, 3)]),
            id="a counter was off",
        ),
        pytest.param("I8", evidence(asked=set(), accepted=set()), id="a job nobody asked for"),
        pytest.param(
            "I8",
            evidence(replace(SOUND, key="k"), replace(SOUND, id="b", key="k"), failures=[]),
            id="two jobs of one key",
        ),
        pytest.param("I11", evidence(replace(SOUND, failures=6)), id="too many failures"),
        pytest.param("I11", evidence(replace(SOUND, crashes=4)), id="too many crashes"),
        pytest.param(
            "I11", evidence(replace(SOUND, state="dead_letter", failures=5), ledger=[]), id="parked without a reason"
        ),
        pytest.param(
            "I11",
            evidence(replace(SOUND, state="dead_letter", error="e", reason="r", crashes=2), ledger=[]),
            id="parked too early",
        ),
        pytest.param("I15", evidence(runs=[("s", 1, "a"), ("s", 1, "a")]), id="a schedule fired twice"),
        pytest.param("I15", evidence(runs=[("s", 1, "b")]), id="a firing has no job"),
        pytest.param(
            "I17",
            evidence(LIMITED, replace(LIMITED, id="b"), failures=[], samples=[TWO_OF_A_KEY, Sample({})]),
            id="a limit key let two through",
        ),
        pytest.param(
            "I17",
            evidence(SOUND, replace(SOUND, id="b"), samples=[TWO_RUNNING, Sample({})], queue_limits={"default": 1}),
            id="too many of a queue ran",
        ),
        pytest.param(
            "I17",
            evidence(SOUND, replace(SOUND, id="b"), samples=[TWO_RUNNING, Sample({})], queue_limits={"*": 1}),
            id="too many of all queues ran",
        ),
    ],
)
def test_a_planted_violation_is_named(invariant: str, planted: Evidence) -> None:
    assert set(violations(planted)) == {invariant}


def test_jobs_within_their_limits_are_no_violation() -> None:
    pair = [replace(LIMITED, limit=2), replace(LIMITED, id="b", limit=2)]
    running = Sample({job.id: replace(job, state="running", lease_left_us=500_000) for job in pair})
    waiting = Sample({"a": running.jobs["a"], "b": replace(pair[1], state="blocked")})

    within = evidence(*pair, samples=[running, waiting], queue_limits={"default": 2, "*": 2, "other": 1})

    assert violations(within) == {}


def test_an_operators_action_excuses_a_change_of_an_ended_job() -> None:
    restarted = evidence(samples=[Sample({"a": replace(SOUND, state="dead_letter")})], operated={"a"})

    assert violations(restarted) == {}


def test_observations_do_not_grow_with_the_number_of_samples() -> None:
    samples = [
        Sample(
            {"a": RUNNING, "b": replace(LIMITED, id="b"), "c": replace(QUEUED, id="c")}, (Counter("batch 1", 3, 2),)
        ),
        Sample({"a": SOUND, "c": replace(LIMITED, id="c", state="queued", attempt=3)}),
        Sample({"c": replace(QUEUED, id="c", attempt=1)}, has_ended_jobs=False),
    ]

    assert sizes(Observations(samples * 100)) == sizes(Observations(samples * 2))


def sizes(observed: Observations) -> dict[str, int]:
    return {name: len(kept) for name, kept in vars(observed).items() if isinstance(kept, Sized)}


def test_a_violation_is_reported_with_its_offenders_and_the_seed() -> None:
    with pytest.raises(AssertionError, match=r"(?s)seed 7: I2 broken.*I2: a \(transfer\)"):
        verify(evidence(ledger=[]))


def test_a_report_shows_some_offenders_and_counts_the_others() -> None:
    lost = {f"lost-{number}" for number in range(MOST_SHOWN + 3)}

    with pytest.raises(AssertionError) as caught:
        verify(evidence(accepted=lost, asked={"a", *lost}))

    assert len(str(caught.value).splitlines()) == 1 + MOST_SHOWN + 1
    assert str(caught.value).endswith("I1: and 3 more")


def test_every_invariant_has_a_planted_violation() -> None:
    [mark] = [mark for mark in test_a_planted_violation_is_named.pytestmark if mark.name == "parametrize"]  # type: ignore[attr-defined]

    assert {case.values[0] for case in mark.args[1]} == set(INVARIANTS)


def test_a_request_is_in_the_journal_before_it_is_confirmed(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "journal")

    journal.ask(["a", "b"])
    journal.confirm(["a"])

    assert journal.ids("ok") == {"a"}
    assert journal.ids("maybe") == {"a", "b"}


def test_a_note_that_is_still_being_written_is_not_read(tmp_path: Path) -> None:
    sink = Sink(tmp_path / "sink")
    sink.write("a", 1, "start", "w")
    with sink.path.open("a") as file:
        file.write('["a", 1, "eff')

    assert [note[:4] for note in sink.notes()] == [("a", 1, "start", "w")]


def test_the_evidence_is_read_from_every_database(backend: Backend, tmp_path: Path) -> None:
    sink, job_id = Sink(tmp_path / "sink"), new_id()
    backend.rows("insert into ledger (job_id, attempt, effect, at) values (:id, 1, 'done', 0)", id=job_id)
    sink.write(job_id, 1, "start", "w")

    found = gather(backend, seed=1, journal=Journal(tmp_path / "journal"), sink=sink, observed=Observations())

    assert found.ledger == [(job_id, 1)]
    assert [note[:4] for note in found.notes] == [(job_id, 1, "start", "w")]
    assert set(violations(found)) == {"I2"}
