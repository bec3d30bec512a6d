"""How a message in the dead letter queue is classified and stored."""

from __future__ import annotations

import json
from typing import Any

import pytest

from stagepost.model.dead_letter import (
    KEPT_BYTES,
    MOST_BYTES,
    Letter,
    Notice,
    Undelivered,
    Unreadable,
    from_text,
    notice_of,
    sort_letter,
    stray,
    to_text,
    wrap_unreadable,
)
from stagepost.model.envelope import request_for

JOB = "01890a5d-ac96-774b-bcce-b302099a8057"
REQUEST = request_for(
    routing_key="task.mail", job_id=JOB, task_name="mail", attempt=2, created_at=0, payload="{}", context=None
)


def death(reason: str, **more: Any) -> dict[str, Any]:
    return {"x-death": [{"reason": reason, "queue": "task.mail", "routing-keys": ["task.mail"], **more}]}


@pytest.mark.parametrize(
    ("reason", "ends_job"), [("expired", True), ("rejected", True), ("delivery_limit", True), ("maxlen", False)]
)
def test_a_request_that_the_broker_dropped_is_recognised_by_its_headers(reason: str, ends_job: bool) -> None:
    about = sort_letter(Letter(body=REQUEST.body, headers=death(reason)))

    assert about == Undelivered(JOB, 2, reason, "task.mail")
    assert about.ends_job is ends_job


def test_the_first_death_counts() -> None:
    headers = {"x-death": [*death("rejected", queue="task.later")["x-death"], *death("expired")["x-death"]]}

    assert sort_letter(Letter(body=REQUEST.body, headers=headers)) == Undelivered(JOB, 2, "expired", "task.mail")


def test_a_notice_names_its_job_and_whose_it_is() -> None:
    ours = notice_of(
        routing_key="task.dlq",
        asked_by="task.mail",
        job_id=JOB,
        task_name="mail",
        attempt=2,
        created_at=0,
        payload="{}",
        context=None,
        finished_at=1_000_000,
        error=None,
    )

    assert sort_letter(Letter(body=ours.body, message_id=ours.message_id)) == Notice(JOB, is_ours=True)
    assert sort_letter(Letter(body=ours.body, message_id="theirs")) == Notice(JOB, is_ours=False)
    assert json.loads(ours.body)["failed_at"] == "1970-01-01T00:00:01.000Z"
    kept = stray(Letter(body=ours.body, headers=ours.headers, message_id=ours.message_id))
    assert (kept.routing_key, json.loads(kept.body)["task_id"]) == ("task.mail", JOB)


@pytest.mark.parametrize(
    "letter",
    [
        Letter(body=b"nonsense"),
        Letter(body=b"nonsense", headers=death("expired")),
        Letter(body=REQUEST.body),  # published there by somebody
        Letter(body=REQUEST.body, headers={"x-death": "not a list"}),
        Letter(body=REQUEST.body, headers={"x-death": [7]}),
        Letter(body=b'{"original_message": 5, "failed_at": "", "failure_reason": "", "attempt": 1}'),
        Letter(body=b"[" * 100_000),
        Letter(body=b"bytes", message_id=b"\xff", correlation_id=b"\xfe", headers={b"\xfd": b"\xfc"}),  # type: ignore[arg-type,dict-item]
        Letter(body=b"nul", message_id="a\0b", correlation_id="c\0d" * 100),
    ],
    ids=lambda letter: str(letter.body[:20]),
)
def test_any_other_message_is_stored_as_a_stray(letter: Letter) -> None:
    assert sort_letter(letter) is None
    kept = stray(letter)
    assert kept.error
    assert kept.message_id
    assert "\0" not in f"{kept.message_id}{kept.correlation_id}"
    assert len(kept.correlation_id or "") <= 255


def test_the_same_message_has_the_same_id_and_another_has_another() -> None:
    ids = [stray(Letter(body=body, message_id=name)).id for body, name in [(b"a", "1"), (b"a", "1"), (b"a", "2")]]

    assert ids[0] == ids[1]
    assert ids[0] != ids[2]


def test_wrapping_the_same_message_later_gives_it_the_same_name_and_id() -> None:
    bad = Unreadable(queue="task.mail", routing_key="task.mail", body=b"{broken", error="no JSON", message_id="m")
    first, second = (wrap_unreadable(bad, routing_key="task.dlq", at=at) for at in (0, 1_000_000))

    kept = [stray(Letter(body=one.body, headers=one.headers, message_id=one.message_id)) for one in (first, second)]

    assert first.body != second.body
    assert first.message_id == second.message_id
    assert kept[0].id == kept[1].id


def test_a_message_that_is_sent_again_lacks_the_headers_that_the_broker_added() -> None:
    kept = stray(Letter(body=b"x", headers={**death("expired"), "x-first-death-reason": "expired", "mine": 1}))

    again = kept.again()

    assert (again.routing_key, again.body, dict(again.headers)) == ("task.mail", b"x", {"mine": 1})


def test_only_the_beginning_of_a_too_large_message_is_kept_and_the_error_says_so() -> None:
    kept = stray(Letter(body=b"x" * (MOST_BYTES + 1)))

    assert len(kept.body) == KEPT_BYTES
    assert "4,194,305 bytes, of which the first 65,536 are kept" in kept.error


@pytest.mark.parametrize("body", [b"", b"plain", "käse".encode(), b"\xff\xfe", b"a\x00b", b"\x01" * 100])
def test_any_body_survives_being_stored_as_text(body: bytes) -> None:
    encoding, text = to_text(body)

    assert from_text(encoding, text) == body
    assert "\0" not in text
