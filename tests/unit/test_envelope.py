"""The JSON that travels through a broker: what is written is a contract, what is read may be anything."""

from __future__ import annotations

import json
import re
import uuid
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stagepost.errors import BadMessage
from stagepost.model.context import TraceContext
from stagepost.model.envelope import (
    MOST_BYTES,
    Message,
    decode_answer,
    decode_envelope,
    message_id_of,
    request_for,
    utc_text,
)

JOB_ID = "019a8a56-0f3e-7c44-a7d1-2b9c1d0e5a03"
CREATED_AT = 1_700_000_000_123_456
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)
REQUEST: dict[str, Any] = {
    "task_id": JOB_ID,
    "step": "asr",
    "attempt": 1,
    "trace_id": "t",
    "created_at": "2023-11-14T22:13:20.123Z",
    "payload": {},
}
ANSWER: dict[str, Any] = {"task_id": JOB_ID, "attempt": 1, "status": "completed"}


def request(**changes: Any) -> Message:
    facts: dict[str, Any] = {
        "routing_key": "task.asr",
        "job_id": JOB_ID,
        "task_name": "asr",
        "attempt": 2,
        "created_at": CREATED_AT,
        "payload": '{"audio_key":"a.wav","language":"en"}',
        "context": TraceContext(trace_id="4bf9", correlation_id="req-7", user_id="ada").encode(),
    }
    return request_for(**(facts | changes))


def test_a_request_has_the_fields_of_the_contract_and_no_others() -> None:
    assert json.loads(request().body) == {
        "task_id": JOB_ID,
        "step": "asr",
        "attempt": 2,
        "trace_id": "4bf9",
        "created_at": "2023-11-14T22:13:20.123Z",
        "payload": {"audio_key": "a.wav", "language": "en"},
    }


def test_a_request_has_a_priority_only_if_its_queue_has_levels() -> None:
    assert request().priority is None
    assert request(priority=2).priority == 2


def test_a_request_has_the_ids_and_headers_of_the_contract() -> None:
    message = request()

    assert (message.routing_key, message.message_id, message.correlation_id) == ("task.asr", f"{JOB_ID}.2", "req-7")
    assert message.headers == {
        "taskId": JOB_ID,
        "userId": "ada",
        "taskType": "asr",
        "submittedAt": "2023-11-14T22:13:20.123Z",
        "attempt": 2,
    }


def test_a_job_without_a_trace_id_is_traced_by_its_own_id() -> None:
    message = request(context=None)

    assert json.loads(message.body)["trace_id"] == message.correlation_id == JOB_ID
    assert "userId" not in message.headers


def test_every_message_of_an_attempt_has_the_same_id() -> None:
    assert request().message_id == request().message_id == message_id_of(JOB_ID, 2)
    assert request(attempt=3).message_id != request().message_id


@given(text=st.text(max_size=400))
def test_a_correlation_id_fits_into_amqps_short_strings(text: str) -> None:
    correlation_id = request(context=TraceContext(correlation_id=text).encode()).correlation_id

    assert correlation_id is not None
    assert len(correlation_id.encode()) <= 255
    assert (text or JOB_ID).startswith(correlation_id)


@given(
    payload=st.dictionaries(st.text(max_size=9), JSON, max_size=3),
    attempt=st.integers(1, 2**31 - 1),
    name=st.text(min_size=1, max_size=50),
    trace=st.text(max_size=50),
)
def test_an_encoded_envelope_can_be_decoded(payload: Any, attempt: int, name: str, trace: str) -> None:
    message = request(
        payload=json.dumps(payload), attempt=attempt, task_name=name, context=TraceContext(trace_id=trace).encode()
    )

    read = decode_envelope(message.body)

    assert (str(read.task_id), read.step, read.attempt) == (JOB_ID, name, attempt)
    assert (read.trace_id, read.created_at) == (trace or JOB_ID, "2023-11-14T22:13:20.123Z")
    assert json.loads(bytes(read.payload)) == payload


@given(st.integers(0, 253_402_300_799_999_999))
def test_times_are_utc_with_milliseconds_and_a_z(instant: int) -> None:
    text = utc_text(instant)

    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", text)
    moment = datetime.fromisoformat(text)
    assert moment.tzinfo == UTC
    assert round((moment - datetime(1970, 1, 1, tzinfo=UTC)).total_seconds() * 1000) == instant // 1000


def test_an_answer_needs_only_its_job_attempt_and_status() -> None:
    answer = decode_answer(json.dumps(ANSWER).encode())

    assert (str(answer.task_id), answer.attempt, answer.status) == (JOB_ID, 1, "completed")
    assert (bytes(answer.result), answer.error, answer.retryable) == (b"null", None, True)
    assert bytes(answer.progress) == b"null"


@pytest.mark.parametrize("decode", [decode_envelope, decode_answer])
def test_unknown_fields_are_ignored(decode: Any) -> None:
    body = json.dumps({**REQUEST, **ANSWER, "host": "gpu-7"}).encode()

    assert decode(body).attempt == 1


@pytest.mark.parametrize(
    ("decode", "body", "why"),
    [
        (decode_envelope, REQUEST | {"task_id": "7"}, "task_id"),
        (decode_envelope, REQUEST | {"task_id": JOB_ID.upper()}, "task_id"),
        (decode_envelope, REQUEST | {"task_id": JOB_ID + "\n"}, "task_id"),
        (decode_envelope, REQUEST | {"attempt": 0}, "attempt is 0"),
        (decode_envelope, REQUEST | {"attempt": -1}, "attempt is -1"),
        (decode_envelope, REQUEST | {"attempt": 2**31}, "attempt is 2147483648"),
        (decode_envelope, REQUEST | {"attempt": "1"}, "attempt"),
        (decode_envelope, {name: REQUEST[name] for name in REQUEST if name != "payload"}, "payload"),
        (decode_envelope, [], "Expected `object`"),
        (decode_answer, ANSWER | {"status": "done"}, "status"),
        (decode_answer, ANSWER | {"attempt": 0}, "attempt is 0"),
        (decode_answer, ANSWER | {"task_id": None}, "task_id"),
        (decode_answer, ANSWER | {"retryable": "no"}, "retryable"),
    ],
)
def test_a_bad_message_raises_an_error_that_says_why(decode: Any, body: Any, why: str) -> None:
    with pytest.raises(BadMessage, match=why):
        decode(json.dumps(body).encode())


@pytest.mark.parametrize("decode", [decode_envelope, decode_answer])
def test_a_message_that_is_too_large_is_not_read(decode: Any) -> None:
    body = json.dumps({**REQUEST, **ANSWER}).encode()

    assert decode(body + b" " * (MOST_BYTES - len(body)))
    with pytest.raises(BadMessage, match=r"4,194,305 bytes"):
        decode(body + b" " * (MOST_BYTES + 1 - len(body)))


@pytest.mark.parametrize("decode", [decode_envelope, decode_answer])
def test_a_message_that_is_nested_too_deeply_is_refused(decode: Any) -> None:
    depth = 1_000_000
    body = json.dumps({**ANSWER, **REQUEST, "result": 0}).replace(
        '"result": 0', f'"result": {"[" * depth}{"]" * depth}'
    )

    assert len(body) > depth
    with pytest.raises(BadMessage, match="recursion"):
        decode(body.encode())


def mutilated(body: bytes, cuts: list[tuple[int, bytes]]) -> bytes:
    for place, new in cuts:
        at = place % (len(body) + 1)
        body = body[:at] + new + body[at + 1 :]
    return body


CUTS = st.lists(st.tuples(st.integers(0, 500), st.binary(max_size=3)), max_size=4)


@given(
    body=st.binary(max_size=200)
    | JSON.map(lambda value: json.dumps(value).encode())
    | st.fixed_dictionaries({}, optional=dict.fromkeys({*REQUEST, *ANSWER}, JSON)).map(
        lambda fields: json.dumps({**REQUEST, **ANSWER, **fields}).encode()
    )
    | st.tuples(st.sampled_from([REQUEST, ANSWER]), CUTS).map(
        lambda made: mutilated(json.dumps(made[0]).encode(), made[1])
    ),
    decode=st.sampled_from([decode_envelope, decode_answer]),
)
def test_any_bytes_are_decoded_or_refused_as_a_bad_message(body: bytes, decode: Any) -> None:
    try:
        message = decode(body)
    except BadMessage:
        return
    assert message.attempt >= 1
    assert uuid.UUID(str(message.task_id)).version is not None
    for name in ("payload", "result", "progress"):
        if isinstance(raw := getattr(message, name, None), msgspec.Raw):
            json.loads(bytes(raw))
