"""Runs of pipelines: each step after those it takes something of, once, whoever ends what and when."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import msgspec
import pytest

from stagepost.model.outcome import Completed, Refused
from stagepost.model.pipeline import Gathered, Output, RunInput, RunState
from stagepost.store import batches, concluding, history, leases, runs, settling
from stagepost.store.run_views import results_of
from stagepost.store.settlement import Settlement
from tests.conformance.bench import Bench
from tests.conformance.pipelines import (
    arguments,
    begin,
    claim_all,
    conclude,
    end,
    look,
    new_run,
    settle,
    states,
    step,
    work,
)
from tests.conformance.samples import LEASE, looking_too_early


def test_a_run_that_another_request_started_meanwhile_is_found(store: Bench) -> None:
    first = begin(store, step("extract"), key="film:7")

    again = store.run(looking_too_early(runs.start(new_run(step("extract"), key="film:7"))))

    assert (again.run.id, again.is_new) == (first, False)


def test_a_chain_runs_in_order_and_hands_results_on(store: Bench) -> None:
    run_id = begin(
        store,
        step("extract", {"video": RunInput("video")}),
        step("asr", {"audio": Output("extract", ("key",)), "language": RunInput("language")}),
        step("mux", {"text": Output("asr"), "quality": 7}),
        given={"video": "v.mp4", "language": "de"},
    )
    assert states(store, run_id) == {"extract": "running", "asr": "pending", "mux": "pending"}

    seen: dict[str, Any] = {}

    def note(name: str, result: Any) -> Any:
        def answer(**given: Any) -> Any:
            seen[name] = given
            return result

        return answer

    state = work(
        store,
        run_id,
        {"extract": note("extract", {"key": "a.wav"}), "asr": note("asr", "hallo"), "mux": note("mux", None)},
    )

    assert state is RunState.COMPLETED
    assert list(seen.items()) == [
        ("extract", {"video": "v.mp4"}),
        ("asr", {"audio": "a.wav", "language": "de"}),
        ("mux", {"text": "hallo", "quality": 7}),
    ]


def test_a_steps_jobs_have_the_options_and_context_of_the_run(store: Bench) -> None:
    begin(store, step("only"))

    [job] = claim_all(store)

    assert (job.task_name, job.queue_name, job.priority, job.max_attempts) == ("task.only", "steps", 3, 2)
    assert msgspec.json.decode(job.context or "") == {"trace": "4bf9"}


def test_one_job_for_each_element_and_the_results_in_their_order(store: Bench) -> None:
    run_id = begin(
        store,
        step("asr"),
        step("tts", {"segment": Output("asr", ("segments",)), "voice": "Ada"}, each="segment"),
        step("mux", {"parts": Output("tts")}),
    )
    [asr] = claim_all(store)
    end(store, asr, Completed('{"segments":["c","a","b"]}'))
    tts = claim_all(store)
    assert sorted(arguments(job)["segment"] for job in tts) == ["a", "b", "c"]

    for job in sorted(tts, key=lambda job: arguments(job)["segment"]):  # not the order of the elements
        assert claim_all(store) == [], "the join must not begin before the last of them has ended"
        end(store, job, Completed(msgspec.json.encode(arguments(job)["segment"].upper()).decode()))
    [mux] = claim_all(store)
    end(store, mux, Completed('"film"'))

    assert arguments(mux) == {"parts": ["C", "A", "B"]}
    assert look(store, run_id).state is RunState.COMPLETED
    assert [job.result for job in store.run(results_of(run_id, "tts")).jobs] == ['"C"', '"A"', '"B"']


def test_many_elements_are_read_page_by_page(store: Bench) -> None:
    many = list(range(1_200))
    run_id = begin(
        store,
        step("each", {"number": many}, each="number", max_bytes=100),
        step("sum", {"numbers": Output("each")}),
    )
    found = []
    while chunk := claim_all(store):
        if chunk[0].task_name == "task.sum":
            found = arguments(chunk[0])["numbers"]
        changes = [Settlement.of(job, Completed(str(arguments(job).get("number", 0)))) for job in chunk]
        store.run(settling.settle(changes))
        store.run(conclude(chunk[0]))

    assert found == many
    assert look(store, run_id).state is RunState.COMPLETED


def test_an_empty_list_ends_the_step_at_once(store: Bench) -> None:
    run_id = begin(
        store, step("none", {"x": RunInput("xs")}, each="x"), step("join", {"xs": Output("none")}), given={"xs": []}
    )

    [join] = claim_all(store)

    assert arguments(join) == {"xs": []}
    assert states(store, run_id) == {"none": "completed", "join": "running"}


def test_a_run_whose_steps_have_nothing_to_do_is_completed_when_it_is_started(store: Bench) -> None:
    started = store.run(runs.start(new_run(step("none", {"x": []}, each="x"))))

    assert started.run.state is RunState.COMPLETED
    assert look(store, started.run.id).ended_at == store.now


def test_a_join_takes_the_results_of_several_steps(store: Bench) -> None:
    run_id = begin(
        store,
        step("a"),
        step("b", after=("a",)),
        step("c", after=("a",)),
        step("d", {"both": Gathered((Output("b"), Output("c"))), "first": Output("a")}),
    )

    seen: list[Any] = []
    state = work(store, run_id, {"a": 1, "b": 2, "c": 3, "d": lambda **given: seen.append(given)})

    assert state is RunState.COMPLETED
    assert seen == [{"both": [2, 3], "first": 1}]


def test_the_same_key_is_one_run(store: Bench) -> None:
    first = store.run(runs.start(new_run(step("only", {"x": 1}), key="video:7")))
    second = store.run(runs.start(new_run(step("only", {"x": 2}), key="video:7")))

    assert (first.is_new, second.is_new) == (True, False)
    assert second.run.id == first.run.id
    assert [arguments(job) for job in claim_all(store)] == [{"x": 1}]
    assert store.run(runs.find("dub", "video:7")) == second.run
    assert store.run(runs.find("dub", "video:8")) is None


def test_a_start_that_is_repeated_after_a_lost_reply_starts_nothing_twice(store: Bench) -> None:
    new = new_run(step("a"), step("b", after=("a",)))
    store.run(runs.start(new))
    [job] = claim_all(store)
    end(store, job, Completed(None))

    again = store.run(runs.start(new).repeated())

    assert again.is_new
    assert [job.task_name for job in claim_all(store)] == ["task.b"]
    assert states(store, new.id) == {"a": "completed", "b": "running"}


def test_advancing_a_run_again_after_a_lost_reply_starts_nothing_twice(store: Bench) -> None:
    run_id = begin(store, step("a"), step("b", after=("a",)))
    [job] = claim_all(store)
    settle(store, job, Completed(None))

    for _ in range(3):
        store.run(conclude(job).repeated())

    assert [job.task_name for job in claim_all(store)] == ["task.b"]
    assert len(look(store, run_id).steps["b"].batches) == 1


def test_stop_starts_no_more_steps_and_fails_when_running_ones_have_ended(store: Bench) -> None:
    run_id = begin(
        store, step("bad"), step("slow"), step("after_bad", after=("bad",)), step("after_slow", after=("slow",))
    )
    by_name = {job.task_name: job for job in claim_all(store)}

    end(store, by_name["task.bad"], Refused("no audio"))
    assert look(store, run_id).state is RunState.RUNNING
    end(store, by_name["task.slow"], Completed("1"))

    run = look(store, run_id)
    assert run.state is RunState.FAILED
    assert run.error == "step 'bad': no audio"
    assert states(store, run_id) == {
        "bad": "failed", "slow": "completed", "after_bad": "skipped", "after_slow": "skipped"
    }  # fmt: skip
    assert claim_all(store) == []


def test_skip_skips_dependent_steps_and_continues_with_the_rest(store: Bench) -> None:
    run_id = begin(
        store,
        step("bad", on_failed="skip"),
        step("good"),
        step("after_bad", after=("bad",)),
        step("further", {"x": Output("after_bad")}),
        step("after_both", after=("good", "further")),
        step("after_good", after=("good",)),
    )

    state = work(store, run_id, {"bad": ValueError("no")})

    assert state is RunState.COMPLETED_WITH_ERRORS
    assert states(store, run_id) == {
        "bad": "failed", "good": "completed", "after_bad": "skipped", "further": "skipped", "after_both": "skipped",
        "after_good": "completed",
    }  # fmt: skip


def test_continue_passes_on_null_or_the_existing_results(store: Bench) -> None:
    run_id = begin(
        store,
        step("bad", on_failed="continue"),
        step("some", {"x": [1, 2, 3]}, each="x", on_failed="continue"),
        step(
            "join",
            {"one": Output("bad"), "part": Output("bad", ("key", 0)), "many": Output("some")},
        ),
        step("none", {"x": Output("bad", ("list",))}, each="x"),
    )

    seen: list[Any] = []
    state = work(
        store,
        run_id,
        {
            "bad": ValueError("no"),
            "some": lambda x: ValueError("odd") if x == 2 else x * 10,
            "join": lambda **given: seen.append(given),
        },
    )

    assert seen == [{"one": None, "part": None, "many": [10, 30]}]
    assert state is RunState.COMPLETED_WITH_ERRORS
    assert states(store, run_id) == {"bad": "failed", "some": "failed", "join": "completed", "none": "completed"}
    assert look(store, run_id).steps["some"].error == "1 of 3 jobs failed, most of them with: odd"


@pytest.mark.parametrize(
    ("made", "reason"),
    [
        (step("b", {"x": Output("a")}, max_bytes=100), "its arguments are 208 bytes of JSON; the limit is 100"),
        (step("b", {"x": Output("a", ("key",))}), "the result of step 'a' has no 'key'"),
        (step("b", {"x": Output("a")}, each="x"), "is not a list"),
    ],
)
def test_a_step_whose_arguments_cannot_be_made_fails_and_the_run_goes_on_by_its_policy(
    store: Bench, made: Any, reason: str
) -> None:
    plan = msgspec.structs.replace(made, on_failed="continue")
    run_id = begin(store, step("a"), plan, step("c", {"x": Output("b")}))

    state = work(store, run_id, {"a": "x" * 200})

    assert state is RunState.COMPLETED_WITH_ERRORS
    assert reason in (look(store, run_id).steps["b"].error or "")
    assert states(store, run_id) == {"a": "completed", "b": "failed", "c": "completed"}


def test_results_larger_than_any_job_may_take_fail_the_step_that_takes_them(store: Bench) -> None:
    run_id = begin(
        store,
        step("big", {"x": list(range(6))}, each="x"),
        step("join", {"all": Output("big")}, max_bytes=1_048_576),
    )

    state = work(store, run_id, {"big": "x" * 250_000})

    assert state is RunState.FAILED
    assert "more than 1,048,576 bytes" in (look(store, run_id).steps["join"].error or "")


def test_results_that_were_discarded_before_a_retry_fail_the_step_that_takes_them(store: Bench) -> None:
    run_id = begin(store, step("a"), step("b"), step("c", {"a": Output("a")}, after=("b",)))
    by_name = {job.task_name: job for job in claim_all(store)}
    end(store, by_name["task.a"], Completed("1"))
    end(store, by_name["task.b"], Refused("no"))
    store.run(history.discard([by_name["task.a"].id], actor="ada"))
    store.run(runs.retry(run_id, actor="ada"))

    assert work(store, run_id) is RunState.FAILED

    assert "1 of 1 results of step 'a' are not there any more" in (look(store, run_id).error or "")


def test_a_worker_that_died_is_replaced_when_its_lease_ends(store: Bench) -> None:
    run_id = begin(store, step("a"), step("b", {"x": Output("a")}))
    [lost] = claim_all(store, owner="dead")
    store.clock.advance(LEASE + timedelta(seconds=1))
    store.run(leases.rescue_expired(grace=timedelta(0)))
    [taken_over] = claim_all(store)
    end(store, taken_over, Completed('"second"'))

    held = store.run(settling.settle([Settlement.of(lost, Completed('"first"'))]))

    assert list(held.values()) == [False]
    assert [arguments(job) for job in claim_all(store)] == [{"x": "second"}]
    assert states(store, run_id) == {"a": "completed", "b": "running"}


def test_upkeep_advances_a_run_whose_worker_died_before_it_could(store: Bench) -> None:
    run_id = begin(store, step("a"), step("b", after=("a",)))
    [job] = claim_all(store)
    settle(store, job, Completed(None))
    assert states(store, run_id)["b"] == "pending"

    for batch_id in store.run(batches.idle_batches()):
        store.run(concluding.conclude(batch_id))

    assert states(store, run_id) == {"a": "completed", "b": "running"}
