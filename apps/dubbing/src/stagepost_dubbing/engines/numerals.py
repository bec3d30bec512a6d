"""Numbers as languages write them: 1,250.75 in English is 1.250,75 in Portuguese."""

from __future__ import annotations

import re
import unicodedata
from decimal import Decimal

from stagepost_dubbing.engines.languages import base_language

__all__ = ["NUMBER", "localised", "readings"]

_SEPARATORS = ".,'\u2019\u00a0\u2009\u202f"
NUMBER = re.compile(rf"(?:(?<![^\W_])|(?<=\dh))\d+(?:[{_SEPARATORS}]\d+)*")
"""A number that is not part of a name such as H2O; 10h30 holds two."""

DOT = frozenset({"bn", "en", "he", "hi", "ja", "ko", "ms", "ta", "te", "th", "tl", "ur", "yue", "zh"})
"""Languages that write a point before the decimals."""
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
"""Languages that write a comma there. Spanish is in neither: its countries differ."""


def readings(number: str, language: str) -> frozenset[Decimal]:
    """Say what a number can mean; several values where its language allows several."""
    plain = _plain(number)
    base = base_language(language)
    marks = ["."] if base in DOT else [","] if base in COMMA else [".", ","]
    found = {value for mark in marks if (value := _value(plain, decimal_mark=mark)) is not None}
    if not found:  # written as another language does, and not to be misunderstood
        found = {value for mark in ".," if (value := _value(plain, decimal_mark=mark)) is not None}
    return frozenset(found)


def localised(number: str, *, source: str, target: str) -> str:
    """Write a number of one language as another does; what has one form only stays as it is."""
    bases = base_language(source), base_language(target)
    differ = (bases[0] in DOT and bases[1] in COMMA) or (bases[0] in COMMA and bases[1] in DOT)
    plain = _plain(number)
    if not differ or _value(plain, decimal_mark="." if bases[0] in DOT else ",") is None:
        return number
    return plain.translate(str.maketrans(".,", ",."))


def _plain(number: str) -> str:
    """Write the digits of any script as 0 to 9, and leave out the separators that only group."""
    digits = (str(unicodedata.decimal(sign)) if sign.isdecimal() else sign for sign in number)
    return "".join(sign for sign in digits if sign.isdecimal() or sign in ".,")


def _value(plain: str, *, decimal_mark: str) -> Decimal | None:
    """Read a number whose decimals follow `decimal_mark`; None if it is not well written so."""
    group = "," if decimal_mark == "." else "."
    whole, mark, decimals = plain.partition(decimal_mark)
    if mark and not decimals.isdecimal():
        return None
    first, *groups = whole.split(group)
    grouped_well = not groups or (len(first) <= 3 and first != "0" and all(len(part) == 3 for part in groups))
    if not first.isdecimal() or not grouped_well:
        return None
    return Decimal("".join([first, *groups]) + (f".{decimals}" if mark else "")).normalize()
