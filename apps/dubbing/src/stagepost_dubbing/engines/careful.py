"""Wraps every translator: splits long texts, retries failed batches text by text, and checks fixed parts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Self

from stagepost import Permanent, Retryable, StagepostError
from stagepost_dubbing.engines import environment as read
from stagepost_dubbing.engines.errors import Refused, TimedOut, Unavailable
from stagepost_dubbing.engines.fixed_parts import fixed_parts, is_kept, protect
from stagepost_dubbing.engines.interfaces import Translator
from stagepost_dubbing.engines.languages import tidy_language
from stagepost_dubbing.engines.numerals import localised
from stagepost_dubbing.engines.splitting import join_pieces, split_text

__all__ = ["CarefulSettings", "CarefulTranslator"]

Outcome = str | StagepostError


@dataclass(frozen=True)
class CarefulSettings:
    """Number of retries and maximum length of a text."""

    item_max_retries: int = 3
    """Retries of a single text after its batch failed."""
    max_text_length: int = 2000
    """A longer text, in characters, is split."""

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> Self:
        """Read TRANSLATE_ITEM_MAX_RETRIES and TRANSLATE_MAX_TEXT_LENGTH."""
        return cls(
            item_max_retries=read.whole_number(environment, "TRANSLATE_ITEM_MAX_RETRIES", 3, least=1, most=100),
            max_text_length=read.whole_number(environment, "TRANSLATE_MAX_TEXT_LENGTH", 2000, least=20, most=1_000_000),
        )


class CarefulTranslator:
    """A translator that adds splitting, retries and checks to another one."""

    def __init__(self, translator: Translator, settings: CarefulSettings | None = None) -> None:
        self.translator = translator
        self.settings = settings or CarefulSettings()

    def translate(self, texts: Sequence[str], *, source: str, target: str) -> Sequence[str]:
        """Translate all texts, or raise the error of the first one that failed."""
        translations = []
        for outcome in self.translate_each(texts, source=source, target=target):
            if isinstance(outcome, StagepostError):
                raise outcome
            translations.append(outcome)
        return translations

    def translate_each(self, texts: Sequence[str], *, source: str, target: str) -> list[Outcome]:
        """Translate one batch; the result has an error in place of each translation that failed.

        A service that is unavailable or rate limited is not called again: the remaining texts get the same error.
        """
        if tidy_language(source) == tidy_language(target):
            return list(texts)
        work = _Work(self.translator, source=source, target=target, tries=self.settings.item_max_retries)
        pieces_of = [split_text(text, self.settings.max_text_length) for text in texts]
        outcomes = iter(work.translate_batch([piece.strip() for pieces in pieces_of for piece in pieces]))
        return [_joined(pieces, [next(outcomes) for _ in pieces], target) for pieces in pieces_of]


def _joined(pieces: list[str], outcomes: list[Outcome], target: str) -> Outcome:
    translations = []
    for outcome in outcomes:
        if isinstance(outcome, StagepostError):
            return outcome
        translations.append(outcome)
    return join_pieces(pieces, translations, target=target)


class _Work:
    """Translates one batch of pieces."""

    def __init__(self, translator: Translator, *, source: str, target: str, tries: int) -> None:
        self.translator = translator
        self.source, self.target = source, target
        self.tries = tries
        self.end: StagepostError | None = None
        """The error after which no further call makes sense."""

    def translate_batch(self, pieces: Sequence[str]) -> list[Outcome]:
        """Translate pieces together, and then the remaining ones one by one."""
        wanted = [at for at, piece in enumerate(pieces) if piece]
        outcomes: list[Outcome] = ["" for _ in pieces]
        together = self._try_together([pieces[at] for at in wanted])
        for at, found in zip(wanted, together, strict=True):
            good = found is not None and self._is_good(pieces[at], found)
            outcomes[at] = found if found is not None and good else self._translate_one(pieces[at])
        return outcomes

    def _try_together(self, texts: Sequence[str]) -> Sequence[str | None]:
        if len(texts) > 1:
            try:
                return self._call(texts)
            except (Unavailable, Refused) as error:
                self.end = error
            except (Permanent, Retryable):
                pass  # One of the texts may be the cause, so each is then tried alone.
        return [None] * len(texts)

    def _translate_one(self, text: str) -> Outcome:
        if self.end is not None:
            return self.end
        try:
            return self._insist_on_whole(text)
        except (Unavailable, Refused, TimedOut) as error:
            self.end = error
            return error
        except (Permanent, Retryable) as error:
            return error

    def _insist_on_whole(self, text: str) -> str:
        """Keep the fixed parts, by methods that increasingly affect the quality of the sentence."""
        translation = self._insist(text)
        if self._is_good(text, translation):
            return translation
        return self._translate_protected(text) or self._translate_between(text)

    def _translate_protected(self, text: str) -> str | None:
        protected = protect(text, source=self.source, target=self.target)
        restored = protected.restore(self._insist(protected.text))
        return restored if restored is not None and self._is_good(text, restored) else None

    def _translate_between(self, text: str) -> str:
        """Translate only the text between the fixed parts, so that these cannot change."""
        result, at = "", 0
        for part in fixed_parts(text):
            kept = localised(part.text, source=self.source, target=self.target) if part.is_number else part.text
            result += self._translate_scrap(text[at : part.start]) + kept
            at = part.end
        return result + self._translate_scrap(text[at:])

    def _translate_scrap(self, text: str) -> str:
        body = text.strip()
        if not any(sign.isalpha() for sign in body):
            return text
        return join_pieces([text], [self._insist(body)], target=self.target)

    def _insist(self, text: str) -> str:
        """Translate a text, and retry after temporary errors."""
        for _ in range(self.tries - 1):
            try:
                return self._call_one(text)
            except (Unavailable, TimedOut):
                raise
            except Retryable:
                continue
        return self._call_one(text)

    def _call_one(self, text: str) -> str:
        [translation] = self._call([text])
        if not translation.strip():
            raise Retryable(f"the translator returned nothing for {text[:60]!r}")
        return translation

    def _call(self, texts: Sequence[str]) -> Sequence[str]:
        try:
            translations = list(self.translator.translate(texts, source=self.source, target=self.target))
        except StagepostError:
            raise
        except Exception as error:  # a user's engine may raise anything
            raise Retryable(f"the translator raised {type(error).__name__}: {error}") from error
        if len(translations) != len(texts) or not all(isinstance(text, str) for text in translations):
            raise Retryable(f"the translator returned {len(translations)} translations for {len(texts)} texts")
        return translations

    def _is_good(self, text: str, translation: str) -> bool:
        return bool(translation.strip()) and is_kept(text, translation, source=self.source, target=self.target)
