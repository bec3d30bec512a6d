"""Checks of functions that become tasks."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, get_type_hints

from stagepost.client.context import JobContext
from stagepost.errors import TaskError
from stagepost.task import Task

__all__ = ["check_function", "wants_context"]


def check_function(function: object, *, name: str | None) -> None:
    """Refuse what cannot be a task; `name` is the one that was chosen for it."""
    if isinstance(function, Task):
        raise TaskError(
            f"{function.name} is a task already. To register its function again, write app.task(task.function)."
        )
    if not callable(function):
        raise TaskError(
            f"task got {function!r}, which is not a function. Write @app.task above a `def` or `async def`."
        )
    if name is None and getattr(function, "__name__", "") == "<lambda>":
        raise TaskError("a lambda has no name of its own. Write a `def`, or pass name=… to @app.task.")


def wants_context(function: Callable[..., Any]) -> bool:
    """Return whether the first parameter is the context of the job. Methods, and contexts elsewhere, are refused."""
    parameters = list(inspect.signature(function).parameters)
    if not parameters:
        return False
    place = getattr(function, "__qualname__", repr(function))
    outside = place.rpartition(".")[0]
    if parameters[0] == "self" and outside and not outside.endswith("<locals>"):
        raise TaskError(
            f"{place}: `self` cannot be stored. A task is a function of a module, not a method: pass what it needs as "
            f"arguments."
        )
    hints = _hints(function, place)
    for parameter in parameters[1:]:
        if hints.get(parameter) is JobContext:
            raise TaskError(f"{place}: parameter `{parameter}: JobContext` must be the first one.")
    return hints.get(parameters[0]) is JobContext


def _hints(function: Callable[..., Any], place: str) -> dict[str, Any]:
    try:
        return get_type_hints(function)
    except NameError as error:
        raise TaskError(
            f"{place}: a type hint cannot be read: {error}. Import it in its module, and not only under "
            f"`if TYPE_CHECKING`."
        ) from error
