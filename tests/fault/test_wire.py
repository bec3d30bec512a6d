"""Statements and answers are seen however the bytes are cut into pieces."""

from __future__ import annotations

import struct

import pytest

from tests.fault.wire import Conversation, MysqlConversation, PostgresConversation, Statement


def postgres_message(kind: bytes, body: bytes = b"") -> bytes:
    return kind + struct.pack("!I", 4 + len(body)) + body


def mysql_packet(number: int, body: bytes) -> bytes:
    return len(body).to_bytes(3, "little") + bytes([number]) + body


STARTUP = struct.pack("!II", 17, 196608) + b"user\0me\0\0"
TLS_REQUEST = struct.pack("!II", 8, 80877103)
READY = postgres_message(b"Z", b"I")


def sent(conversation: Conversation, data: bytes, *, size: int) -> list[Statement]:
    pieces = [data[start : start + size] for start in range(0, len(data), size)]
    return [statement for piece in pieces for statement in conversation.client_sent(piece)]


def answer(conversation: Conversation, data: bytes, *, size: int) -> None:
    for start in range(0, len(data), size):
        conversation.server_sent(data[start : start + size])


@pytest.mark.parametrize("size", [1, 3, 1000])
def test_postgres_statements_are_found_in_any_pieces(size: int) -> None:
    conversation = PostgresConversation()
    query = postgres_message(b"Q", b"select 1\0")
    extended = postgres_message(b"P", b"\0commit\0\0\0") + postgres_message(b"S")

    statements = sent(conversation, STARTUP + query + extended, size=size)

    assert statements == [Statement(b"select 1", answers=2), Statement(b"commit", answers=3)]


@pytest.mark.parametrize("size", [1, 3, 1000])
def test_a_prepared_postgres_statement_is_seen_whenever_it_is_used_and_not_when_it_is_prepared(size: int) -> None:
    conversation = PostgresConversation()
    prepare = postgres_message(b"P", b"name\0commit\0\0\0") + postgres_message(b"S")
    use = postgres_message(b"B", b"\0name\0\0\0\0\0\0\0") + postgres_message(b"S")

    statements = sent(conversation, STARTUP + prepare + use + use, size=size)

    assert statements == [Statement(b"commit", answers=3), Statement(b"commit", answers=4)]


@pytest.mark.parametrize("size", [1, 3, 1000])
def test_postgres_answers_end_with_ready_for_query(size: int) -> None:
    conversation = PostgresConversation()
    sent(conversation, STARTUP, size=size)

    answer(conversation, postgres_message(b"R", bytes(4)) + READY, size=size)
    assert conversation.answers == 1
    answer(conversation, postgres_message(b"C", b"Z COMMIT\0"), size=size)
    assert conversation.answers == 1
    answer(conversation, READY, size=size)
    assert conversation.answers == 2


def test_postgres_goes_on_in_the_clear_when_the_server_declines_encryption() -> None:
    conversation = PostgresConversation()

    conversation.client_sent(TLS_REQUEST)
    conversation.server_sent(b"N")

    assert conversation.client_sent(STARTUP + postgres_message(b"Q", b"commit\0")) == [Statement(b"commit", 2)]


def test_postgres_statements_inside_tls_are_not_guessed() -> None:
    conversation = PostgresConversation()

    conversation.client_sent(TLS_REQUEST)
    conversation.server_sent(b"S")

    assert conversation.client_sent(postgres_message(b"Q", b"commit\0")) == []


@pytest.mark.parametrize("size", [1, 3, 1000])
def test_mysql_statements_are_found_in_any_pieces(size: int) -> None:
    conversation = MysqlConversation()
    login, close, ping, query = (
        mysql_packet(1, b"login"),
        mysql_packet(0, b"\x19\1\0\0\0"),
        mysql_packet(0, b"\x0e"),
        mysql_packet(0, b"\x03COMMIT"),
    )

    statements = sent(conversation, login + close + ping + query, size=size)

    assert statements == [Statement(b"COMMIT", answers=2)]


@pytest.mark.parametrize("size", [1, 3, 1000])
def test_mysql_greeting_and_login_are_no_answers(size: int) -> None:
    conversation = MysqlConversation()

    answer(conversation, mysql_packet(0, b"greeting") + mysql_packet(2, b"logged in"), size=size)
    assert conversation.answers == 0
    answer(conversation, mysql_packet(1, b"ok"), size=size)
    assert conversation.answers == 1
