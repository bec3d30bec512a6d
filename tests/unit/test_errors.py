"""The tree in the module's docstring is the tree there is."""

from __future__ import annotations

import inspect
import re
from datetime import timedelta

import pytest

from stagepost import errors
from stagepost.errors import StagepostError


def classes() -> dict[str, type]:
    return {
        name: thing
        for name, thing in vars(errors).items()
        if inspect.isclass(thing) and thing.__module__ == errors.__name__
    }


def tree_in_docstring() -> dict[str, str]:
    """Read each class's parent from how far its line is indented."""
    parents: dict[str, str] = {}
    line_of_descent: list[str] = []
    for line in (errors.__doc__ or "").splitlines():
        entry = re.match(r"(?P<branch>[ │├└─]*)(?P<name>[A-Z]\w+)(\s{2,}.*)?$", line)
        if not entry:
            continue
        depth = len(entry["branch"]) // 4
        del line_of_descent[depth:]
        parents[entry["name"]] = line_of_descent[-1] if line_of_descent else "Exception"
        line_of_descent.append(entry["name"])
    return parents


def test_all_names_every_class() -> None:
    assert sorted(errors.__all__) == errors.__all__
    assert set(errors.__all__) == classes().keys()


def test_the_tree_in_the_docstring_is_that_of_the_classes() -> None:
    assert tree_in_docstring() == {name: kind.__base__.__name__ for name, kind in classes().items() if kind.__base__}


def test_every_error_can_be_caught_as_ours_and_says_what_it_is() -> None:
    for kind in classes().values():
        assert issubclass(kind, StagepostError)
        assert kind.__doc__


@pytest.mark.parametrize(
    ("error", "message", "facts"),
    [
        (errors.UnknownTask("mail.send"), "task 'mail.send' is not registered", {"name": "mail.send"}),
        (errors.PayloadTooLarge("result", 2_000, 1_000), "2,000 bytes of JSON; the limit is 1,000", {"size": 2_000}),
        (errors.PayloadTooLarge("result", 2, 1), "give the task `limits=PayloadLimits(max_bytes=…)`", {"limit": 1}),
        (errors.NoTransaction(object()), "builtins.object has no open transaction", {}),
        (errors.JobNotFound("j1"), "job j1: there is no such job", {"job_id": "j1"}),
        (errors.LeaseLost("j1", 3), "job j1: attempt 3 lost its lease", {"job_id": "j1", "attempt": 3}),
        (errors.IllegalTransition("j1", "completed", "be cancelled"), "job j1 is completed", {"state": "completed"}),
        (errors.UniqueKeyTaken("k", "j1"), "unique key 'k' is held by live job j1", {"holder": "j1"}),
        (errors.JobFailed("j1", "failed", "ValueError"), "job j1 ended as failed: ValueError", {"error": "ValueError"}),
        (errors.JobFailed("j1", "cancelled", None), "job j1 ended as cancelled", {"error": None}),
        (errors.Snooze(90), "snoozed for 0:01:30", {"delay": timedelta(seconds=90)}),
    ],
)
def test_a_message_names_the_thing_and_the_facts_are_attributes(
    error: StagepostError, message: str, facts: dict[str, object]
) -> None:
    assert message in str(error)
    assert {name: getattr(error, name) for name in facts} == facts


def test_a_delay_may_be_given_in_seconds_or_as_a_timedelta() -> None:
    assert errors.Retryable(after=2).after == errors.Retryable(after=timedelta(seconds=2)).after
    assert errors.Snooze(2).delay == errors.Snooze(timedelta(seconds=2)).delay
    assert errors.Retryable().after is None
