"""Describes what travels through the broker as an AsyncAPI 3.0 document, made of an app's tasks."""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import unquote, urlsplit

import msgspec

from stagepost.client.app import App
from stagepost.config.rabbitmq import LEAST_PRIORITY
from stagepost.task import Task

__all__ = ["asyncapi_of"]

VERSION = "3.0.0"
PORTS = {"amqp": 5672, "amqps": 5671}
NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9._-]")
RESULT, PROGRESS = "return", "yield"
"""What stands for them beside the names of parameters: no parameter has such a name."""
UUID_TEXT = {"type": "string", "format": "uuid", "description": "The job."}
ATTEMPT = {"type": "integer", "minimum": 1, "description": "From 1; an answer names that of its request."}
INSTANT = {"type": "string", "format": "date-time", "description": "UTC, with a Z."}


def asyncapi_of(app: App, *, title: str = "Stagepost", version: str = "1") -> dict[str, Any]:
    """Describe the channels, operations and messages of an app whose queues a broker carries."""
    settings = app.settings.rabbitmq
    tasks = [task for task in app.registry if settings.carries(task.options.queue)]
    schemas = _Schemas(tasks)
    queues = sorted({task.options.queue for task in tasks})
    channels = {
        settings.routing_key(queue): [_name(task, "request") for task in tasks if task.options.queue == queue]
        for queue in queues
    }
    channels[settings.answers] = [_name(task, "answer") for task in tasks]
    channels[settings.dead_letters] = ["deadLetter"]
    messages = {_name(task, "request"): _request(task, schemas) for task in tasks}
    messages |= {_name(task, "answer"): _answer(task, schemas) for task in tasks}
    messages["deadLetter"] = _dead_letter()
    queue_of = {settings.routing_key(queue): queue for queue in queues}
    operations = {}
    for address in channels:
        if address in queue_of:
            operations[f"request.{address}"] = _operation("send", address, "Ask for an attempt of a job.")
            operations[f"work.{address}"] = _operation("receive", address, "Take a request and run it.")
    answered = _operation("receive", settings.answers, "Take what foreign programs answer.")
    told = _operation("send", settings.dead_letters, "Tell that a job failed for good.")
    operations |= {"answers": answered, "deadLetters": told}
    document: dict[str, Any] = {
        "asyncapi": VERSION,
        "info": {"title": title, "version": version, "description": "Requests, answers and dead letters of tasks."},
        "defaultContentType": "application/json",
        "channels": {
            _key(address): _channel(app, address, names)
            | (_priorities(app, queue_of[address]) if address in queue_of else {})
            for address, names in channels.items()
        },
        "operations": {_key(name): operation for name, operation in operations.items()},
        "components": {"messages": messages, "schemas": schemas.components},
    }
    if app.settings.transport is not None:
        document["servers"] = {"rabbitmq": _server(app.settings.transport)}
    return document


class _Schemas:
    """JSON schemas of all annotations, with what they share as components."""

    def __init__(self, tasks: list[Task[..., Any]]) -> None:
        self._found: dict[tuple[str, str], dict[str, Any]] = {}
        self.components: dict[str, Any] = {}
        wanted = {
            (task.name, name): annotation
            for task in tasks
            for name, annotation in {
                **task.signature.parameters,
                RESULT: task.signature.result_annotation,
                PROGRESS: task.options.progress,
            }.items()
        }
        found, self.components = msgspec.json.schema_components(
            list(wanted.values()), schema_hook=_unknown, ref_template="#/components/schemas/{name}"
        )
        self._found = dict(zip(wanted, found, strict=True))

    def argument(self, task: Task[..., Any], name: str) -> dict[str, Any]:
        return self._found[task.name, name]

    def result(self, task: Task[..., Any]) -> dict[str, Any]:
        return self._found[task.name, RESULT]

    def progress(self, task: Task[..., Any]) -> dict[str, Any]:
        return self._found[task.name, PROGRESS]


def _unknown(kind: type) -> dict[str, Any]:
    """Describe a type that is not msgspec's to describe: a pydantic model by itself, all else as anything."""
    describe = getattr(kind, "model_json_schema", None)
    schema: dict[str, Any] = describe() if describe is not None else {}
    return {"title": kind.__name__} if "$defs" in schema or not schema else schema


def _request(task: Task[..., Any], schemas: _Schemas) -> dict[str, Any]:
    arguments = {
        "type": "object",
        "properties": {name: schemas.argument(task, name) for name in task.signature.parameters},
        "required": sorted(task.signature.required),
        "additionalProperties": False,
    }
    properties = {
        "task_id": UUID_TEXT,
        "step": {"const": task.name},
        "attempt": ATTEMPT,
        "trace_id": {"type": "string"},
        "created_at": INSTANT,
        "payload": arguments,
    }
    summary = (task.__doc__ or "").strip().partition("\n")[0]
    return _message(f"Request to run {task.name}", properties, summary=summary, headers=REQUEST_HEADERS)


def _answer(task: Task[..., Any], schemas: _Schemas) -> dict[str, Any]:
    properties = {
        "task_id": UUID_TEXT,
        "attempt": ATTEMPT,
        "status": {"enum": ["completed", "failed", "progress"]},
        "result": schemas.result(task),
        "error": {"type": ["string", "null"], "description": "Of a failed one: what happened."},
        "retryable": {"type": "boolean", "default": True},
        "progress": schemas.progress(task),
    }
    return _message(f"Answer to {task.name}", properties, required=["task_id", "attempt", "status"])


def _dead_letter() -> dict[str, Any]:
    properties = {
        "original_message": {"description": "The request, or what could not be read."},
        "failed_at": INSTANT,
        "failure_reason": {"type": "string"},
        "attempt": ATTEMPT,
    }
    return _message("Notice that a job failed for good", properties)


REQUEST_HEADERS = {
    "taskId": UUID_TEXT,
    "taskType": {"type": "string"},
    "submittedAt": INSTANT,
    "attempt": ATTEMPT,
    "userId": {"type": "string"},
}


def _message(
    title: str,
    properties: dict[str, Any],
    *,
    summary: str = "",
    headers: dict[str, Any] | None = None,
    required: list[str] | None = None,
) -> dict[str, Any]:
    message: dict[str, Any] = {
        "title": title,
        "contentType": "application/json",
        "payload": {
            "type": "object",
            "properties": properties,
            "required": sorted(properties) if required is None else required,
        },
    }
    if summary:
        message["summary"] = summary
    if headers is not None:
        message["headers"] = {"type": "object", "properties": headers}
        message["correlationId"] = {"location": "$message.header#/correlation_id"}
    return message


def _channel(app: App, address: str, names: list[str]) -> dict[str, Any]:
    exchange = app.settings.rabbitmq.exchange_name
    return {
        "address": address,
        "messages": {name: {"$ref": f"#/components/messages/{name}"} for name in names},
        "bindings": {
            "amqp": {
                "is": "routingKey",
                "exchange": {"name": exchange, "type": "topic", "durable": True, "autoDelete": False},
                "bindingVersion": "0.3.0",
            }
        },
    }


def _priorities(app: App, queue: str) -> dict[str, Any]:
    """Say which AMQP priority a request has, where its queue has several."""
    own = app.settings.rabbitmq.of(queue)
    if not own.priorities:
        return {}
    return {
        "description": "Requests have the AMQP property `priority`: that of the last level whose number the priority "
        "of the job reaches.",
        "x-priorities": [
            {"jobPriority": first, "messagePriority": own.message_priority(first)}
            for first in (LEAST_PRIORITY, *own.priorities)
        ],
    }


def _operation(action: str, address: str, summary: str) -> dict[str, Any]:
    return {"action": action, "summary": summary, "channel": {"$ref": f"#/channels/{_key(address)}"}}


def _server(url: str) -> dict[str, Any]:
    parts = urlsplit(url)
    return {
        "host": f"{parts.hostname or 'localhost'}:{parts.port or PORTS[parts.scheme]}",
        "protocol": parts.scheme,
        "pathname": f"/{unquote(parts.path[1:])}",
    }


def _name(task: Task[..., Any], kind: str) -> str:
    return _key(f"{task.name}.{kind}")


def _key(text: str) -> str:
    """Make a name that AsyncAPI allows as a key."""
    return NOT_IN_NAMES.sub("_", text)
