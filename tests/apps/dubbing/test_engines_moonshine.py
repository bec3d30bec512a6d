"""Moonshine hears a talk whose words and times are known."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from stagepost import Permanent
from stagepost.errors import ConfigurationError
from stagepost_dubbing.engines.choose import choose_recogniser
from stagepost_dubbing.engines.interfaces import Recogniser, Utterance
from stagepost_dubbing.sound import Sound, wav_bytes
from tests.apps.dubbing.checks import word_error_rate
from tests.apps.dubbing.spoken import RATE, Talk, talk


@pytest.fixture(scope="module")
def moonshine() -> Recogniser:
    return choose_recogniser("moonshine", {})


@pytest.fixture(scope="module")
def given_talk() -> Talk:
    return talk()


@pytest.fixture(scope="module")
def recording(given_talk: Talk, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return given_talk.save(tmp_path_factory.mktemp("talk") / "talk.wav")


@pytest.fixture(scope="module")
def heard(moonshine: Recogniser, recording: Path) -> Sequence[Utterance]:
    return moonshine.recognise(recording, language="en", while_running=lambda _: None)


def save(path: Path, samples: np.ndarray[tuple[int], np.dtype[np.int16]]) -> Path:
    path.write_bytes(wav_bytes(Sound.from_pcm(samples.tobytes(), RATE)))
    return path


def test_at_most_a_tenth_of_the_words_is_wrong(heard: Sequence[Utterance], given_talk: Talk) -> None:
    errors = word_error_rate(" ".join(given_talk.sentences), " ".join(utterance.text for utterance in heard))
    assert errors <= 0.10


def test_each_sentence_begins_and_ends_where_it_was_spoken(heard: Sequence[Utterance], given_talk: Talk) -> None:
    starts, ends = [utterance.start for utterance in heard], [utterance.end for utterance in heard]
    for start, end in given_talk.times:
        assert min(abs(start - other) for other in starts) <= 0.1
        assert min(abs(end - other) for other in ends) <= 0.1


def test_utterances_are_in_order_and_do_not_overlap(heard: Sequence[Utterance]) -> None:
    for before, after in itertools.pairwise(heard):
        assert before.start < before.end <= after.start


@pytest.mark.prove
def test_the_same_sound_gives_the_same_utterances_from_every_thread(
    moonshine: Recogniser, given_talk: Talk, heard: Sequence[Utterance], tmp_path: Path
) -> None:
    beginning = save(tmp_path / "beginning.wav", given_talk.samples[: int(given_talk.times[3][0] * RATE)])

    def recognise(_: int) -> Sequence[Utterance]:
        return moonshine.recognise(beginning, language="en-GB", while_running=lambda _: None)

    with ThreadPoolExecutor(2) as threads:
        for again in threads.map(recognise, range(4)):
            assert list(again) == list(heard[: len(again)])
            assert len(again) >= 3


def test_it_says_how_far_it_is_and_stops_when_told(moonshine: Recogniser, recording: Path) -> None:
    parts: list[float] = []

    def stop_after_two(part: float) -> None:
        parts.append(part)
        if len(parts) == 2:
            raise TimeoutError

    with pytest.raises(TimeoutError):
        moonshine.recognise(recording, language="en", while_running=stop_after_two)
    assert len(parts) == 2
    assert 0 < parts[0] < parts[1] < 1


@pytest.mark.parametrize("kind", ["nothing", "silence", "noise"])
def test_sound_without_speech_is_a_permanent_error(moonshine: Recogniser, tmp_path: Path, kind: str) -> None:
    noise = np.random.default_rng(1).normal(0, 60, RATE * 5).astype(np.int16)
    sound = {"nothing": noise[:0], "silence": noise * 0, "noise": noise}[kind]

    with pytest.raises(Permanent, match="no speech was found"):
        moonshine.recognise(save(tmp_path / "quiet.wav", sound), language="en", while_running=lambda _: None)


def test_another_language_is_refused_with_what_to_choose(moonshine: Recogniser, recording: Path) -> None:
    with pytest.raises(Permanent, match=r"support only English, not 'zh'; set DUBBING_RECOGNISER to whisper"):
        moonshine.recognise(recording, language="zh", while_running=lambda _: None)


def test_a_file_that_is_no_recording_is_refused(moonshine: Recogniser, tmp_path: Path) -> None:
    path = tmp_path / "song.wav"
    for content, complaint in [
        (b"not sound at all", "not a WAV file"),
        (b"", "not a WAV file"),
        (wav_bytes(Sound.from_pcm(bytes(3200), 44_100)), "44100 Hz"),
    ]:
        path.write_bytes(content)
        with pytest.raises(Permanent, match=complaint):
            moonshine.recognise(path, language="en", while_running=lambda _: None)
    with pytest.raises(Permanent, match="no such recording"):
        moonshine.recognise(tmp_path / "missing.wav", language="en", while_running=lambda _: None)


def test_settings_that_cannot_work_are_named() -> None:
    with pytest.raises(ConfigurationError, match="MOONSHINE_MODEL_ARCHITECTURE='huge': choose tiny or base"):
        choose_recogniser("moonshine", {"MOONSHINE_MODEL_ARCHITECTURE": "huge"})
    with pytest.raises(ConfigurationError, match="MOONSHINE_MODEL_PATH='/nowhere' is not a directory"):
        choose_recogniser("moonshine", {"MOONSHINE_MODEL_PATH": "/nowhere"})
