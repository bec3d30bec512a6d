"""Lets the traceback of an error begin in the code of the user."""

from __future__ import annotations

from types import TracebackType

from stagepost.errors import StagepostError

__all__ = ["begin_in_handler"]

PACKAGE = __name__.partition(".")[0]


def begin_in_handler(error: BaseException, *, home: str) -> None:
    """Remove the leading frames that belong to Stagepost; `home` is the handler's module.

    If nothing else is left, an error of Stagepost's own says enough without frames and cause. They are kept in all
    other errors, which are bugs.
    """
    rest = error.__traceback__
    while rest is not None and _is_ours(rest, home):
        rest = rest.tb_next
    if rest is None and isinstance(error, StagepostError):
        error.__cause__, error.__suppress_context__ = None, True  # its frames are ours as well
    if rest is not None or isinstance(error, StagepostError):
        error.with_traceback(rest)


def _is_ours(frame: TracebackType, home: str) -> bool:
    variables = frame.tb_frame.f_globals
    # Not the module's name: that of the program in a handler's process is `__main__`.
    package = str(variables.get("__package__", ""))
    return package.partition(".")[0] == PACKAGE and variables.get("__name__") != home
