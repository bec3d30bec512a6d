"""`stagepost asyncapi`."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from tests.acceptance.cli.command_line import CommandLine


def test_the_asyncapi_document_holds_together(shop: CommandLine) -> None:
    shop.environment |= {"STAGEPOST_TRANSPORT": "amqp://guest:secret-of-a-test@127.0.0.1:5672/x"}

    document = json.loads(shop.says("asyncapi", "--title", "Shop", "--version", "7"))

    assert (document["asyncapi"], document["info"]["title"], document["info"]["version"]) == ("3.0.0", "Shop", "7")
    assert document["servers"]["rabbitmq"] == {"host": "127.0.0.1:5672", "protocol": "amqp", "pathname": "/x"}
    assert set(document["channels"]) == {"task.default", "task.slow", "task.results", "task.dlq"}
    for reference in references(document):
        assert resolved(document, reference) is not None, reference
    for name in [*document["channels"], *document["operations"], *document["components"]["messages"]]:
        assert re.fullmatch(r"[A-Za-z0-9._\-]+", name)
    assert {operation["action"] for operation in document["operations"].values()} == {"send", "receive"}
    mail = document["components"]["messages"]["shop.mail.request"]["payload"]
    assert mail["properties"]["step"] == {"const": "shop.mail"}
    assert mail["properties"]["payload"] == {
        "type": "object",
        "properties": {"to": {"type": "string"}, "copies": {"type": "integer"}},
        "required": ["to"],
        "additionalProperties": False,
    }
    assert document["components"]["messages"]["shop.mail.answer"]["payload"]["properties"]["result"] == {
        "type": "string"
    }
    assert "secret-of-a-test" not in json.dumps(document)


def references(value: Any) -> Iterator[str]:
    """Find every `$ref` in a document."""
    if isinstance(value, dict):
        if "$ref" in value:
            yield value["$ref"]
        for inner in value.values():
            yield from references(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from references(inner)


def resolved(document: Any, reference: str) -> Any:
    """Follow a reference within a document."""
    for part in reference.removeprefix("#/").split("/"):
        document = document.get(part) if isinstance(document, dict) else None
    return document
