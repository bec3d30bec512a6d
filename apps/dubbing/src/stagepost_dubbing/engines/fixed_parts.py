"""The parts of a text that a translation must keep: numbers, placeholders and addresses."""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from decimal import Decimal
from typing import NamedTuple

from stagepost_dubbing.engines.numerals import NUMBER, localised, readings

__all__ = ["FixedPart", "Protected", "fixed_parts", "is_kept", "protect"]

_VERBATIM = re.compile(
    r"https?://[^\s<>\"]*[^\s<>\".,;:!?')\]]"  # an address, without the full stop after it
    r"|[\w.+-]{1,64}@[\w-]{1,63}(?:\.[\w-]{1,63}){1,8}"
    r"|\$?\{\{?[^{}\s]{0,60}\}?\}"  # {name}, {{name}}, ${name}
    r"|%\(\w{1,60}\)[a-z]|%(?:\d+\$)?[sdif]\b"  # %(name)s, %s, %1$d
)
_GROUPED_BY_SPACES = re.compile(r"(?<![\w.,])\d{1,3}(?: \d{3})+(?:,\d+)?(?!\w)")


class FixedPart(NamedTuple):
    """A part of a text that means the same in every language."""

    start: int
    end: int
    text: str
    is_number: bool


def fixed_parts(text: str) -> list[FixedPart]:
    """Find fixed parts in order; digits within an address are not numbers."""
    verbatim = [FixedPart(match.start(), match.end(), match[0], is_number=False) for match in _VERBATIM.finditer(text)]
    taken = [range(part.start, part.end) for part in verbatim]
    numbers = [
        FixedPart(match.start(), match.end(), match[0], is_number=True)
        for match in NUMBER.finditer(text)
        if not any(match.start() in part for part in taken)
    ]
    return sorted(verbatim + numbers)


def is_kept(original: str, translation: str, *, source: str, target: str) -> bool:
    """Return whether the translation has the same placeholders and addresses, and every number.

    It may have additional numbers, because "two" may have become 2.
    """
    before, after = fixed_parts(original), fixed_parts(translation)
    if Counter(part.text for part in before if not part.is_number) != Counter(
        part.text for part in after if not part.is_number
    ):
        return False
    there = [_meanings(part.text, target) for part in after if part.is_number]
    there += [_meanings(match[0].replace(" ", ""), target) for match in _GROUPED_BY_SPACES.finditer(translation)]
    return all(_take(_meanings(part.text, source), there) for part in before if part.is_number)


def _meanings(number: str, language: str) -> frozenset[Decimal | str]:
    """Return the possible values of a number; text such as 3.11.2, which is not a number, means itself."""
    return frozenset(readings(number, language)) or frozenset({number})


def _take(wanted: frozenset[Decimal | str], there: list[frozenset[Decimal | str]]) -> bool:
    for at, values in enumerate(there):
        if wanted & values:
            del there[at]
            return True
    return False


class Protected(NamedTuple):
    """A text in which stand-ins replace the fixed parts."""

    text: str
    stand_ins: Mapping[str, str]
    """Maps each stand-in to its fixed part, with numbers already in the target language's format."""

    def restore(self, translation: str) -> str | None:
        """Put the fixed parts back; None if a stand-in is missing or duplicated."""
        found = [match[0] for match in _STAND_IN.finditer(translation) if match[0] in self.stand_ins]
        if sorted(found) != sorted(self.stand_ins):
            return None
        return _STAND_IN.sub(lambda match: self.stand_ins.get(match[0], match[0]), translation)


_STAND_IN = re.compile(r"(?<![\w.,])(?:XQ)?\d{2,}(?![.,]?\w)")


def protect(text: str, *, source: str, target: str) -> Protected:
    """Replace each number by a plain number and each placeholder by a name, which translators keep best."""
    free = _free_numbers(text)
    stand_ins: dict[str, str] = {}
    pieces, at = [], 0
    for part in fixed_parts(text):
        stand_in = next(free) if part.is_number else f"XQ{next(free)}"
        stand_ins[stand_in] = localised(part.text, source=source, target=target) if part.is_number else part.text
        pieces += [text[at : part.start], stand_in]
        at = part.end
    return Protected("".join([*pieces, text[at:]]), stand_ins)


def _free_numbers(text: str) -> Iterator[str]:
    """Yield numbers that do not occur in the text, small ones first, because they are translated best."""
    return (str(number) for number in itertools.chain(range(71, 100), itertools.count(711)) if str(number) not in text)
