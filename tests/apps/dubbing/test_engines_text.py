"""What holds for all texts: splitting, numbers and placeholders, and the care around a translator."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stagepost import Permanent, Retryable
from stagepost_dubbing.engines.careful import CarefulSettings, CarefulTranslator
from stagepost_dubbing.engines.choose import choose_translator
from stagepost_dubbing.engines.fixed_parts import fixed_parts, is_kept, protect
from stagepost_dubbing.engines.numerals import localised, readings
from stagepost_dubbing.engines.splitting import join_pieces, split_text

WORDS = st.text("abcdefghijklmnopqrstuvwyzäé", min_size=1, max_size=12)
NUMBERS = st.one_of(
    st.integers(0, 10**9).map(str),
    st.integers(1000, 10**9).map(lambda number: f"{number:,}"),
    st.integers(1000, 10**9).map(lambda number: f"{number:,}".replace(",", "\u202f")),
    st.decimals(0, 10**6, places=3).map(lambda number: f"{number:,}"),
)
PLACEHOLDERS = st.sampled_from(["{name}", "{0}", "%s", "%(count)d", "https://example.com/a?b=1,2", "me@example.com"])
SENTENCES = st.lists(st.one_of(WORDS, NUMBERS, PLACEHOLDERS), min_size=1, max_size=30).flatmap(
    lambda words: st.lists(
        st.sampled_from([" ", ", ", ". ", "! ", "\n", " - "]), min_size=len(words), max_size=len(words)
    ).map(lambda gaps: "".join(word + gap for word, gap in zip(words, gaps, strict=True)))
)


@given(st.one_of(SENTENCES, st.text(max_size=300)), st.integers(20, 80))
def test_the_pieces_of_a_text_are_the_text(text: str, limit: int) -> None:
    pieces = split_text(text, limit)

    assert "".join(pieces) == text
    assert all(pieces) or text == ""
    for piece in pieces:
        assert len(piece) <= limit or any(part.end - part.start > limit for part in fixed_parts(piece))


@given(SENTENCES, st.integers(20, 80))
def test_no_number_and_no_placeholder_is_cut(text: str, limit: int) -> None:
    whole = [part.text for part in fixed_parts(text)]
    assert [part.text for piece in split_text(text, limit) for part in fixed_parts(piece)] == whole


@pytest.mark.parametrize(
    ("text", "pieces"),
    [
        ("One is here. Two is there. Three", ["One is here.", " Two is there. Three"]),
        ("a clause is here, and another one", ["a clause is here,", " and another one"]),
        ("words without any point at all", ["words without any ", "point at all"]),
        ("It costs 1,234,567.89 dollars", ["It costs ", "1,234,567.89 dollars"]),
        ("今天我们来看一看。队列如何遵守它的承诺。再见", ["今天我们来看一看。队列如何遵守它的承诺。", "再见"]),
    ],
)
def test_a_text_is_cut_where_a_reader_would_pause(text: str, pieces: list[str]) -> None:
    assert split_text(text, 20) == pieces


def test_translations_of_pieces_are_joined_as_their_language_does() -> None:
    pieces = ["今天我们来看一看。", "队列如何遵守它的承诺。"]
    assert join_pieces(pieces, ["Today we look.", "Queues."], target="en") == "Today we look. Queues."
    assert join_pieces(["Good. ", "Bye."], ["好。", "再见。"], target="zh") == "好。 再见。"


@pytest.mark.parametrize(
    ("number", "language", "value"),
    [
        ("0.002", "en", "0.002"),
        ("0,002", "pt", "0.002"),
        ("0.002", "pt", "0.002"),
        ("0,0002", "pt", "0.0002"),
        ("1,250.75", "en", "1250.75"),
        ("1.250,75", "pt", "1250.75"),
        ("1.250", "pt", "1250"),
        ("1.250", "en", "1.25"),
        ("\u0663,\u0665", "en", "3.5"),
    ],
)
def test_a_number_is_read_as_its_language_writes_it(number: str, language: str, value: str) -> None:
    assert readings(number, language) == {Decimal(value)}


@given(NUMBERS, st.sampled_from(["pt", "de", "fr", "zh", "es", "xx"]))
def test_a_number_written_for_another_language_means_the_same(number: str, target: str) -> None:
    written = localised(number, source="en", target=target)
    assert readings(number, "en") & readings(written, target)


@pytest.mark.parametrize(
    ("original", "translation", "kept"),
    [
        ("It costs $0.002.", "Custa US $ 0,002.", True),
        ("It costs $0.002.", "Custa US $ 0,0002.", False),
        ("It costs 1.250 dollars.", "Custa 1.250 dólares.", False),
        ("In 2024 there were 2,000,000.", "Em 2024 eram 2.000.000.", True),
        ("At 10:30 on 12/25/2024", "Em 25/12/2024 às 10h30", True),
        ("Python 3.11.2 and H2O", "Python 3.11.2 e H2O", True),
        ("Python 3.11.2", "Python 3.11.3", False),
        ("I have two cats and 3 dogs.", "Tenho 2 gatos e 3 cães.", True),
        ("3 and 3", "3", False),
        ("Hello {name}!", "Olá {name}!", True),
        ("Hello {name}!", "Olá {nome}!", False),
        ("Hello %s!", "Olá % s!", False),
        ("See https://example.com/a1.", "Veja https://example.com/a1.", True),
        ("See https://example.com/a1.", "Veja https: //example.com/a1.", False),
        ("100%", "100%", True),
    ],
)
def test_a_translation_that_changes_a_number_or_a_name_is_noticed(original: str, translation: str, kept: bool) -> None:
    assert is_kept(original, translation, source="en", target="pt") is kept


def test_thousands_may_be_grouped_by_spaces() -> None:
    assert is_kept("There are 10,000 of 2,000,000.5", "Il y en a 10 000 sur 2 000 000,5", source="en", target="fr")


@given(SENTENCES)
def test_what_is_protected_comes_back(text: str) -> None:
    protected = protect(text, source="en", target="pt")
    restored = protected.restore(protected.text)

    assert not fixed_parts(text) or protected.text != text
    assert restored is not None
    assert is_kept(text, restored, source="en", target="pt")


@given(SENTENCES.filter(fixed_parts))
def test_a_stand_in_that_is_lost_or_doubled_is_noticed(text: str) -> None:
    protected = protect(text, source="en", target="pt")
    stand_in = next(iter(protected.stand_ins))

    assert protected.restore(protected.text.replace(stand_in, "", 1)) is None
    assert protected.restore(f"{protected.text} {stand_in}") is None


class Clumsy:
    """Translates by shouting, and changes what it should keep unless it is helped."""

    def __init__(self, *, spoil: Sequence[str], with_help: bool) -> None:
        self.spoil, self.with_help = spoil, with_help
        self.calls: list[list[str]] = []

    def translate(self, texts: Sequence[str], **_: str) -> Sequence[str]:
        self.calls.append(list(texts))
        return [self._one(text) for text in texts]

    def _one(self, text: str) -> str:
        if not self.with_help and any(sign.isdigit() for sign in text):
            return "SPOILT"
        for part in self.spoil:
            text = text.replace(part, "9999")
        return text.upper()


@pytest.mark.parametrize(("with_help", "calls"), [(True, 3), (False, 5)])
def test_a_changed_number_is_mended_in_ever_plainer_ways(with_help: bool, calls: int) -> None:
    clumsy = Clumsy(spoil=["0.002"], with_help=with_help)
    texts = ["nothing here", "it costs 0.002 or so"]

    assert list(CarefulTranslator(clumsy).translate(texts, source="en", target="pt")) == [
        "NOTHING HERE",
        "IT COSTS 0,002 OR SO",
    ]
    assert clumsy.calls[:2] == [texts, texts[1:]]
    assert len(clumsy.calls) == calls


@given(st.lists(SENTENCES.map(str.strip), max_size=5), st.booleans())
def test_everything_that_must_be_kept_is_kept_by_the_worst_translator(texts: list[str], with_help: bool) -> None:
    spoil = [part.text for text in texts for part in fixed_parts(text)][:3]
    careful = CarefulTranslator(Clumsy(spoil=spoil, with_help=with_help), CarefulSettings(max_text_length=60))

    translations = careful.translate(texts, source="en", target="de")

    assert len(translations) == len(texts)
    for text, translation in zip(texts, translations, strict=True):
        assert is_kept(text, translation, source="en", target="de")


def test_a_long_text_is_translated_in_pieces_and_joined() -> None:
    clumsy = Clumsy(spoil=[], with_help=True)
    careful = CarefulTranslator(clumsy, CarefulSettings(max_text_length=20))

    assert careful.translate(["One is here. Two is there.\nThree."], source="en", target="pt") == [
        "ONE IS HERE. TWO IS THERE.\nTHREE."
    ]
    assert clumsy.calls == [["One is here.", "Two is there.", "Three."]]


class Failing:
    """Raises what it is given, and translates when that is used up."""

    def __init__(self, *errors: Exception | str) -> None:
        self.errors = list(errors)
        self.calls = 0

    def translate(self, texts: Sequence[str], **_: str) -> Sequence[str]:
        self.calls += 1
        if self.errors:
            error = self.errors.pop(0)
            if isinstance(error, str):
                return [error] * len(texts)
            raise error
        return [text.upper() for text in texts]


@pytest.mark.parametrize("error", [Retryable("busy"), ValueError("a bug"), ""])
def test_trouble_that_may_pass_is_tried_again(error: Exception | str) -> None:
    failing = Failing(error, error)
    assert CarefulTranslator(failing).translate(["good"], source="en", target="pt") == ["GOOD"]
    assert failing.calls == 3


def test_a_text_that_cannot_be_translated_is_not_tried_again() -> None:
    failing = Failing(Permanent("the batch"), Permanent("too rude"))
    first, second = CarefulTranslator(failing).translate_each(["rude", "good"], source="en", target="pt")

    assert isinstance(first, Permanent)
    assert second == "GOOD"
    assert failing.calls == 3


def test_too_few_translations_are_not_taken() -> None:
    class Short:
        def translate(self, texts: Sequence[str], **_: str) -> Sequence[str]:
            return [text.upper() for text in texts][:1]

    assert CarefulTranslator(Short()).translate(["a", "b"], source="en", target="pt") == ["A", "B"]


def test_empty_texts_and_equal_languages_need_no_call() -> None:
    failing = Failing(ValueError("never called"))
    careful = CarefulTranslator(failing)

    assert careful.translate(["", "  ", "\n"], source="en", target="pt") == ["", "  ", "\n"]
    assert careful.translate(["Hello"], source="pt-BR", target="pt_br") == ["Hello"]
    assert failing.calls == 0


@pytest.mark.parametrize(
    "text",
    [
        "It costs $0.002 per call, and 1,250.75 dollars a year.",
        "Call {name} at %s or see https://example.com/a?b=1 now!",
        "{name} has %d new messages and {count} old ones.",
        "Version 3.11.2 came out at 10:30 on 12/25/2024.",
    ],
)
def test_the_offline_translator_keeps_numbers_and_names_with_care(text: str) -> None:
    [translation] = choose_translator("offline", {}).translate([text], source="en", target="pt")
    assert is_kept(text, translation, source="en", target="pt")
    assert translation != text
