"""Writes subtitles, as SRT and as WebVTT."""

from __future__ import annotations

import textwrap
import unicodedata
from collections.abc import Iterator, Sequence
from itertools import zip_longest

from stagepost_dubbing.engines.interfaces import Utterance

__all__ = ["to_srt", "to_vtt", "wrapped"]

WIDTH = 42
"""Columns per line, as broadcasters use; a Chinese or Japanese character takes two."""


def to_srt(captions: Sequence[Utterance]) -> str:
    """Format captions as SubRip, numbered from 1; empty ones are left out."""
    return "".join(
        f"{number}\n{_time(start, ',')} --> {_time(end, ',')}\n{text.replace('-->', '->')}\n\n"
        for number, (start, end, text) in enumerate(_shown(captions), 1)
    )


def to_vtt(captions: Sequence[Utterance], *, language: str | None = None) -> str:
    """Format captions as WebVTT, with `language` in the header."""
    header = "WEBVTT\n" + (f"Language: {language}\n" if language else "") + "\n"
    return header + "".join(
        f"{_time(start, '.')} --> {_time(end, '.')}\n{_escaped(text)}\n\n" for start, end, text in _shown(captions)
    )


def _shown(captions: Sequence[Utterance]) -> Iterator[tuple[int, int, str]]:
    """Yield times in milliseconds and wrapped text; captions do not overlap, because players would stack them."""
    lines = sorted((caption.start, caption.end, text) for caption in captions if (text := wrapped(caption.text)))
    for (begin, end, text), following in zip_longest(lines, lines[1:]):
        start = max(0, round(begin * 1000))
        until = end if following is None else min(end, following[0])
        yield start, max(start + 1, round(until * 1000)), text


def wrapped(text: str) -> str:
    """Break a text into as few lines as fit the screen, of about equal length."""
    words = "".join(character for character in " ".join(text.split()) if character.isprintable())
    columns = sum(map(_columns, words))
    if columns > len(words):
        return "\n".join(_by_columns(words))
    fewest = len(textwrap.wrap(words, WIDTH, break_on_hyphens=False))
    widths = range(max(1, columns // max(1, fewest)), WIDTH + 1)
    tries = (textwrap.wrap(words, width, break_on_hyphens=False) for width in widths)
    return "\n".join(next((lines for lines in tries if len(lines) <= fewest), []))


def _by_columns(text: str) -> Iterator[str]:
    """Break lines between any two characters, for languages that do not separate words."""
    line, used = "", 0
    for character in text:
        if line and used + _columns(character) > WIDTH:
            yield line.strip()
            line, used = "", 0
        line, used = line + character, used + _columns(character)
    yield line.strip()


def _columns(character: str) -> int:
    return 2 if unicodedata.east_asian_width(character) in {"W", "F"} else 1


def _escaped(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _time(milliseconds: int, point: str) -> str:
    seconds, thousandths = divmod(milliseconds, 1000)
    return f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}{point}{thousandths:03}"
