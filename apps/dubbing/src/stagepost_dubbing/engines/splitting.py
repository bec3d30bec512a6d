"""Splits a long text where a reader would pause, without losing text or cutting numbers and placeholders."""

from __future__ import annotations

import re
from collections.abc import Iterator

from stagepost_dubbing.engines.fixed_parts import fixed_parts
from stagepost_dubbing.engines.languages import base_language

__all__ = ["join_pieces", "split_text"]

SPACELESS = frozenset({"zh", "yue", "ja", "th", "km", "lo", "my"})
"""Languages that put no space between sentences."""

_PLACES = (
    re.compile(r"[.!?…]+[\"'”’)\]]*(?=\s)|[。！？]+[”’」』）]*"),  # noqa: RUF001 (full-width marks are meant)
    re.compile(r"[,;:—–]+(?=\s)|[，；：、]+|\n"),  # noqa: RUF001
    re.compile(r"\s+"),
)


def split_text(text: str, limit: int) -> list[str]:
    """Split a text into pieces of at most `limit` characters, which together are the original text.

    A piece is longer only if a single address or placeholder is.
    """
    pieces = []
    while len(text) > limit:
        cut = _best_cut(text, limit)
        if cut >= len(text):
            break
        pieces.append(text[:cut])
        text = text[cut:]
    return [*pieces, text]


def _best_cut(text: str, limit: int) -> int:
    """Prefer the end of a sentence, then of a clause, then of a word; otherwise cut anywhere."""
    within = [(part.start, part.end) for part in fixed_parts(text)]
    for place in _PLACES:
        cuts = [end for end in _ends(place, text, limit) if not any(first < end < last for first, last in within)]
        if cuts:
            return cuts[-1]
    inside = next(((first, last) for first, last in within if first < limit < last), None)
    if inside is None:
        return limit
    return inside[0] or inside[1]


def _ends(place: re.Pattern[str], text: str, limit: int) -> Iterator[int]:
    for match in place.finditer(text, 0, limit + 1):
        if 0 < match.end() <= limit:
            yield match.end()


def join_pieces(pieces: list[str], translations: list[str], *, target: str) -> str:
    """Join translations of pieces with the original white space between them, or with the space that is required."""
    joined = ""
    for piece, translation in zip(pieces, translations, strict=True):
        body = piece.strip()
        at = piece.find(body)
        before, after = piece[:at], piece[at + len(body) :]
        if joined and body and not before and not joined[-1].isspace() and base_language(target) not in SPACELESS:
            before = " "
        joined += before + (translation.strip() if body else "") + after
    return joined
