"""Just enough of each wire protocol to recognise a statement and the server's answer to it."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

ENCRYPTION_REQUESTS = {80877103, 80877104}  # SSLRequest, GSSENCRequest
MYSQL_TEXT_COMMANDS = {0x03, 0x16}  # COM_QUERY, COM_STMT_PREPARE
MYSQL_SILENT_COMMANDS = {0x01, 0x18, 0x19}  # COM_QUIT, COM_STMT_SEND_LONG_DATA, COM_STMT_CLOSE


@dataclass(frozen=True)
class Statement:
    """What a client asked; answered once the server has sent `answers` complete answers on the connection."""

    text: bytes
    answers: int


class Conversation(Protocol):
    """One connection as seen by a bystander."""

    answers: int

    def client_sent(self, data: bytes) -> list[Statement]:
        """Return the statements that this piece completes."""

    def server_sent(self, data: bytes) -> None:
        """Count the answers that this piece completes."""


class RawConversation:
    """Any protocol: each piece from the client is a statement, each piece from the server an answer."""

    def __init__(self) -> None:
        self.answers = 0

    def client_sent(self, data: bytes) -> list[Statement]:
        return [Statement(data, self.answers + 1)]

    def server_sent(self, data: bytes) -> None:
        self.answers += bool(data)


class PostgresConversation:
    """PostgreSQL, simple and extended protocol: an answer ends with ReadyForQuery.

    Sees the text in Query, in Parse, and where a prepared statement that was parsed under a name is bound. One that
    writes and has no transaction around it is a commit as well, and is called so.
    """

    def __init__(self) -> None:
        self.answers = 0
        self._asked = 1  # the startup packet is answered with a ReadyForQuery, too
        self._has_started = False
        self._is_encrypted = False
        self._encryption_answers = 0
        self._prepared: dict[bytes, bytes] = {}
        self._is_begun = False
        self._from_client = bytearray()
        self._from_server = bytearray()

    def client_sent(self, data: bytes) -> list[Statement]:
        self._from_client += data
        return [] if self._is_encrypted else list(self._statements())

    def server_sent(self, data: bytes) -> None:
        self._from_server += data
        while self._encryption_answers and self._from_server and not self._is_encrypted:
            self._is_encrypted = self._from_server.pop(0) != ord("N")
            self._encryption_answers -= 1
        while not self._is_encrypted and (message := _take_typed(self._from_server)):
            self.answers += message[0] == b"Z"

    def _statements(self) -> Iterator[Statement]:
        while not self._has_started and (body := _take_sized(self._from_client)):
            if int.from_bytes(body[:4], "big") in ENCRYPTION_REQUESTS:
                self._encryption_answers += 1
            else:
                self._has_started = True
        while self._has_started and (message := _take_typed(self._from_client)):
            kind, body = message
            if kind in b"QSF":  # Query, Sync, FunctionCall
                self._asked += 1
            if kind == b"Q":
                yield Statement(self._seen(body.rstrip(b"\0")), self._asked)
            elif kind == b"P":
                name, text, *_ = body.split(b"\0")
                if name:
                    self._prepared[name] = text
                else:
                    yield Statement(self._seen(text), self._asked + 1)  # at the Sync that follows
            elif kind == b"B":
                _portal, name, *_ = body.split(b"\0")
                if name in self._prepared:
                    yield Statement(self._seen(self._prepared[name]), self._asked + 1)

    def _seen(self, text: bytes) -> bytes:
        word = text.split(maxsplit=1)[0].lower() if text.strip() else b""
        if word in {b"begin", b"commit", b"rollback"}:
            self._is_begun = word == b"begin"
        return b"commit of " + text if word == b"with" and not self._is_begun else text


class MysqlConversation:
    """MySQL and MariaDB: packet number 0 starts a command, packet number 1 its answer.

    Sees the text in COM_QUERY and COM_STMT_PREPARE. A result set counts as answered with its first packet.
    """

    def __init__(self) -> None:
        self.answers = 0
        self._asked = 0
        self._from_client = bytearray()
        self._from_server = bytearray()

    def client_sent(self, data: bytes) -> list[Statement]:
        self._from_client += data
        return list(self._statements())

    def server_sent(self, data: bytes) -> None:
        self._from_server += data
        while packet := _take_numbered(self._from_server):
            self.answers += packet[0] == 1

    def _statements(self) -> Iterator[Statement]:
        while packet := _take_numbered(self._from_client):
            number, body = packet
            if number != 0 or not body or body[0] in MYSQL_SILENT_COMMANDS:
                continue
            self._asked += 1
            if body[0] in MYSQL_TEXT_COMMANDS:
                yield Statement(body[1:], self._asked)


def _take_sized(buffer: bytearray) -> bytes | None:
    """PostgreSQL's first packets: a length that counts itself, then the body."""
    if len(buffer) < 4 or len(buffer) < (length := struct.unpack_from("!I", buffer)[0]):
        return None
    return _take(buffer, length)[4:]


def _take_typed(buffer: bytearray) -> tuple[bytes, bytes] | None:
    """PostgreSQL's other messages: a letter, a length that counts itself, then the body."""
    if len(buffer) < 5 or len(buffer) < 1 + (length := struct.unpack_from("!I", buffer, 1)[0]):
        return None
    message = _take(buffer, 1 + length)
    return message[:1], message[5:]


def _take_numbered(buffer: bytearray) -> tuple[int, bytes] | None:
    """MySQL's packets: three bytes of length, a number, then the body."""
    if len(buffer) < 4 or len(buffer) < 4 + (length := int.from_bytes(buffer[:3], "little")):
        return None
    packet = _take(buffer, 4 + length)
    return packet[3], packet[4:]


def _take(buffer: bytearray, count: int) -> bytes:
    taken = bytes(buffer[:count])
    del buffer[:count]
    return taken
