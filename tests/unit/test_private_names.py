"""The private names of dependencies that Stagepost uses: a list, and a check that the installed releases have them.

A name is listed here only if there is no public way; the comment beside its use says what it is for.
"""

from __future__ import annotations

import ast
import inspect
from pathlib import Path

import aiosqlite
import asyncpg
import pika
import psycopg.generators
import psycopg.waiting
import pymysql.connections
import pytest
from pika.adapters.blocking_connection import BlockingConnection
from pika.adapters.utils.io_services_utils import _AsyncTransportBase

import stagepost

ROOT = Path(stagepost.__path__[0])
USED = {
    "database/adapters/sqlite.py": {"_execute", "_conn"},
    "database/async_connection.py": {
        "_execute", "_thread", "_tx", "_running", "_connection",  # aiosqlite
        "_close_reason", "_transport",  # asyncmy
        "_ssl_required",  # our own subclass of PyMySQL's connection
    },
    "database/whereabouts.py": {"_addr", "_params"},  # asyncpg
    "database/connection.py": {"_read_timeout", "_write_timeout", "_sock"},
    "transport/rabbitmq/broker_thread.py": {"_transport"},
    "transport/rabbitmq/deliveries.py": {
        "_frame_buffer", "_channels", "_trim_frame_buffer", "_cancelled", "_consumers",
    },
    "transport/rabbitmq/wire.py": {"_MAX_RECV_BYTES"},
}  # fmt: skip
"""Names on objects other than `self`, by file; overridden methods are only in `DEFINED`."""
OWN = {
    "task.py": {"_limit_rule"},
    "client/records.py": {"_row"},
    "client/tasks.py": {"_app"},
}
"""Names of our own classes."""
DOCUMENTED = {"_asdict", "_replace", "_exit", "_getframe", "_get_running_loop"}
"""Of named tuples, of `os`, of `sys`, and in `asyncio.__all__`."""
DEFINED = {
    aiosqlite.Connection: {"_execute", "_conn", "_thread", "_tx", "_running", "_connection"},
    asyncpg.Connection: {"_addr", "_params"},
    pymysql.connections.Connection: {"_read_timeout", "_write_timeout", "_sock", "_create_ssl_ctx"},
    pika.SelectConnection: {
        "_transport", "_frame_buffer", "_channels", "_trim_frame_buffer", "_output_marshaled_frames",
        "_on_data_available", "_read_frame", "_process_frame",
    },
    BlockingConnection: {"_impl"},
    pika.channel.Channel: {"_cancelled", "_consumers"},
    _AsyncTransportBase: {"_MAX_RECV_BYTES"},
}  # fmt: skip


def private_names_in(path: Path) -> set[str]:
    """List private attributes of objects other than the module's own `self`."""
    return {
        node.attr
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Attribute) and node.attr.startswith("_") and not node.attr.startswith("__")
        if ast.unparse(node.value) not in {"self", "cls", "super()"} and node.attr not in DOCUMENTED
    }


def test_all_private_names_that_are_used_are_listed() -> None:
    found = {str(path.relative_to(ROOT)): private_names_in(path) for path in ROOT.rglob("*.py")}

    assert {path: names for path, names in found.items() if names} == USED | OWN


@pytest.mark.parametrize(
    ("owner", "name"), [(owner, name) for owner, names in DEFINED.items() for name in sorted(names)]
)
def test_the_installed_release_has_a_private_name(owner: type, name: str) -> None:
    sources = [inspect.getsource(kind) for kind in owner.__mro__ if kind is not object and "abc" not in kind.__module__]

    assert hasattr(owner, name) or any(f"self.{name}" in source for source in sources)


def test_the_layer_above_libpq_has_what_is_used_of_it() -> None:
    """These names are public, and undocumented."""
    assert callable(psycopg.adapt.Transformer)
    assert callable(psycopg.generators.execute)
    assert callable(psycopg.waiting.wait)
    assert callable(psycopg.errors.error_from_result)
