"""Numbers as languages write them: 1,250.75 in English is 1.250,75 in Portuguese."""

from __future__ import annotations

import re
import unicodedata
from decimal import Decimal

from stagepost_dubbing.engines.languages import base_language

__all__ = ["NUMBER", "localised", "readings"]

_SEPARATORS = ".,'\u2019\u00a0\u2009\u202f"
NUMBER = re.compile(rf"(?:(?<![^\W_])|(?<=\dh))\d+(?:[{_SEPARATORS}]\d+)*")
"""A number that is not part of a name such as H2O; 10h30 contains two."""

DOT = frozenset({"bn", "en", "he", "hi", "ja", "ko", "ms", "ta", "te", "th", "tl", "ur", "yue", "zh"})
"""Languages that use a decimal point."""
COMMA = frozenset(
    {
        "bg",
        "ca",
        "cs",
        "da",
        "de",
        "el",
        "et",
        "fi",
        "fr",
        "hr",
        "hu",
        "id",
        "it",
        "lt",
        "lv",
        "nb",
        "nl",
        "no",
        "pl",
        "pt",
        "ro",
        "ru",
        "sk",
        "sl",
        "sr",
        "sv",
        "tr",
        "uk",
        "vi",
    }
)
"""Languages that use a decimal comma. Spanish is in neither set, because its countries differ."""


def readings(number: str, language: str) -> frozenset[Decimal]:
    """Return the possible values of a number; several if its language allows several."""
    plain = _plain(number)
    base = base_language(language)
    marks = ["."] if base in DOT else [","] if base in COMMA else [".", ","]
    found = {value for mark in marks if (value := _value(plain, decimal_mark=mark)) is not None}
    if not found:  # written in another language's format, and unambiguous
        found = {value for mark in ".," if (value := _value(plain, decimal_mark=mark)) is not None}
    return frozenset(found)


def localised(number: str, *, source: str, target: str) -> str:
    """Convert a number from one language's format to another's; unambiguous ones stay unchanged."""
    bases = base_language(source), base_language(target)
    differ = (bases[0] in DOT and bases[1] in COMMA) or (bases[0] in COMMA and bases[1] in DOT)
    plain = _plain(number)
    if not differ or _value(plain, decimal_mark="." if bases[0] in DOT else ",") is None:
        return number
    return plain.translate(str.maketrans(".,", ",."))


def _plain(number: str) -> str:
    """Convert digits of any script to 0 to 9, and remove pure grouping separators."""
    digits = (str(unicodedata.decimal(sign)) if sign.isdecimal() else sign for sign in number)
    return "".join(sign for sign in digits if sign.isdecimal() or sign in ".,")


def _value(plain: str, *, decimal_mark: str) -> Decimal | None:
    """Parse a number with this decimal mark; None if it is malformed."""
    group = "," if decimal_mark == "." else "."
    whole, mark, decimals = plain.partition(decimal_mark)
    if mark and not decimals.isdecimal():
        return None
    first, *groups = whole.split(group)
    grouped_well = not groups or (len(first) <= 3 and first != "0" and all(len(part) == 3 for part in groups))
    if not first.isdecimal() or not grouped_well:
        return None
    return Decimal("".join([first, *groups]) + (f".{decimals}" if mark else "")).normalize()
