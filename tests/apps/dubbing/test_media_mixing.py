"""Sound: WAV, rates, speeds, levels, and one track made of many speeches."""

from __future__ import annotations

import tracemalloc
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stagepost import Cancelled, Permanent
from stagepost_dubbing.media.mixing import mix, voice_level
from stagepost_dubbing.media.stretching import speed_up
from stagepost_dubbing.media.timeline import Placed, Slot, place
from stagepost_dubbing.sound import Sound, level, parse_wav, read_wav, resample, wav_bytes, wav_level, write_wav

VOICE = 22_050
RATE = 48_000


def tone(seconds: float, *, pitch: float = 220, loud: float = 0.3, rate: int = VOICE) -> Sound:
    times = np.arange(round(seconds * rate)) / rate
    return Sound((loud * 32767 * np.sin(2 * np.pi * pitch * times)).astype(np.int16), rate)


def pitch_of(sound: Sound) -> float:
    spectrum = np.abs(np.fft.rfft(sound.samples * np.hanning(len(sound.samples))))
    return float(np.argmax(spectrum)) * sound.rate / len(sound.samples)


def heard(sound: Sound, *, above: float = 0.02) -> list[tuple[float, float]]:
    """When there is sound: spans with at least 50 ms of silence between them."""
    loud = np.flatnonzero(np.abs(sound.samples) > above * 32767) / sound.rate
    ends = [*np.flatnonzero(np.diff(loud) > 0.05), len(loud) - 1]
    starts = [0, *(end + 1 for end in ends[:-1])]
    return [(float(loud[first]), float(loud[last])) for first, last in zip(starts, ends, strict=True)]


@given(st.lists(st.integers(-32768, 32767), max_size=300), st.sampled_from([8000, 16_000, 22_050, 48_000]))
def test_wav_keeps_every_sample(samples: list[int], rate: int) -> None:
    again = parse_wav(wav_bytes(Sound(np.array(samples, dtype=np.int16), rate)))

    assert (again.samples.tolist(), again.rate) == (samples, rate)


@pytest.mark.parametrize("data", [b"", b"RIFF", b"not a sound" * 20, wav_bytes(tone(0.1))[:30]])
def test_what_is_no_wav_is_refused(data: bytes) -> None:
    with pytest.raises(Permanent, match="voice is not a WAV file"):
        parse_wav(data, "voice")


@pytest.mark.parametrize("wanted", [8000, 16_000, 24_000, 44_100, 48_000])
def test_another_rate_keeps_length_pitch_and_loudness(wanted: int) -> None:
    again = resample(tone(1.37, pitch=440), wanted)

    assert again.seconds == pytest.approx(1.37, abs=1 / wanted)
    assert pitch_of(again) == pytest.approx(440, abs=2)
    assert level(again) == pytest.approx(level(tone(1.37)), abs=0.2)


@settings(max_examples=100)
@given(st.integers(0, 5000), st.sampled_from([8000, 16_000, 24_000, 44_100]))
def test_every_length_can_be_resampled(count: int, rate: int) -> None:
    assert len(resample(Sound(np.ones(count, dtype=np.int16), rate), RATE).samples) == round(count * RATE / rate)


@pytest.mark.parametrize("speed", [1.0, 1.01, 1.2, 1.35, 1.7, 2.0])
def test_faster_is_shorter_and_not_higher(speed: float) -> None:
    faster = speed_up(tone(3, pitch=220), speed)

    assert faster.seconds == pytest.approx(3 / speed, abs=1 / VOICE)
    assert pitch_of(faster) == pytest.approx(220, abs=2)
    assert level(faster) == pytest.approx(level(tone(3)), abs=0.7)


def test_nothing_is_left_out_of_fast_speech() -> None:
    pitches = [200, 300, 400, 500, 600, 700, 800, 900]
    gap = np.zeros(VOICE // 5, dtype=np.int16)
    parts = [np.concatenate([tone(0.15, pitch=pitch).samples, gap]) for pitch in pitches]

    faster = speed_up(Sound(np.concatenate(parts), VOICE), 2.0)

    spans = heard(faster)
    assert len(spans) == len(pitches)
    for (start, end), pitch in zip(spans, pitches, strict=True):
        assert 0.06 < end - start < 0.11
        piece = faster.samples[round(start * VOICE) : round(end * VOICE)]
        assert pitch_of(Sound(piece, VOICE)) == pytest.approx(pitch, abs=20)


@settings(max_examples=100)
@given(st.integers(0, 3000), st.floats(1, 2))
def test_every_length_can_be_sped_up(count: int, speed: float) -> None:
    faster = speed_up(Sound(np.full(count, 1000, dtype=np.int16), VOICE), speed)

    assert len(faster.samples) == round(count / speed)


def test_every_sentence_starts_where_it_was_placed_and_is_equally_loud(tmp_path: Path) -> None:
    speeches = [tone(1.5, loud=0.02), tone(2.6, loud=0.9), tone(4, loud=0.3)]
    placed = place([Slot(0.5, 2), Slot(9, 11), Slot(13, 16)], [one.seconds for one in speeches], duration=25)

    seconds = mix(tmp_path / "dub.wav", placed, speeches.__getitem__, duration=25)
    track = read_wav(tmp_path / "dub.wav")

    assert (seconds, track.rate, track.seconds) == (25, RATE, 25)
    spans = heard(track)
    assert [start for start, _ in spans] == pytest.approx([0.5, 9, 13], abs=0.01)
    assert [end for _, end in spans] == pytest.approx([2, 11, 16], abs=0.01)
    for start, end in spans:
        part = Sound(track.samples[round(start * RATE) : round(end * RATE)], RATE)
        assert level(part) == pytest.approx(-20, abs=0.7)
    assert [file.name for file in tmp_path.iterdir()] == ["dub.wav"]


def test_a_loud_level_never_clips(tmp_path: Path) -> None:
    mix(tmp_path / "dub.wav", [Placed(Slot(0, 1), 0, 1, 1)], lambda _: tone(1), duration=1, level_db=0)

    assert np.abs(read_wav(tmp_path / "dub.wav").samples.astype(int)).max() < 0.9 * 32768


def test_the_original_is_low_where_somebody_speaks_and_itself_elsewhere(tmp_path: Path) -> None:
    write_wav(tmp_path / "original.wav", tone(20, pitch=1000, loud=0.5, rate=RATE))
    placed = [Placed(Slot(5, 7), 5, 3, 1), Placed(Slot(8.2, 9), 8.2, 0.5, 1)]

    mix(
        tmp_path / "dub.wav",
        placed,
        lambda _: Sound(np.zeros(VOICE * 3, dtype=np.int16), VOICE),
        duration=22,
        under=tmp_path / "original.wav",
        duck_db=-20,
    )
    track = read_wav(tmp_path / "dub.wav").samples.astype(float) / 32767

    def loudest(start: float, end: float) -> float:
        return float(np.abs(track[round(start * RATE) : round(end * RATE)]).max())

    assert loudest(0, 4.8) == loudest(9.2, 19.9) == pytest.approx(0.5, abs=0.01)
    assert loudest(5.01, 8.99) == pytest.approx(0.05, abs=0.005)
    assert loudest(20.1, 22) == 0
    steps = [loudest(at, at + 0.01) for at in np.arange(4.8, 5.1, 0.01)]
    assert all(after <= before + 0.001 for before, after in pairwise(steps))


def test_a_last_sentence_that_ends_after_the_video_is_whole(tmp_path: Path) -> None:
    placed = place([Slot(8, 10)], [6.0], duration=10)

    assert mix(tmp_path / "dub.wav", placed, lambda _: tone(6), duration=10) == 11
    assert heard(read_wav(tmp_path / "dub.wav")) == [pytest.approx((8, 11), abs=0.02)]


def test_speeches_are_loaded_once_in_order_and_a_stop_leaves_nothing(tmp_path: Path) -> None:
    loaded: list[int] = []
    placed = [Placed(Slot(4 * n, 4 * n + 2), 4.0 * n, 2, 1) for n in range(10)]

    def load(index: int) -> Sound:
        loaded.append(index)
        return tone(2)

    mix(tmp_path / "dub.wav", placed, load, duration=40)
    assert loaded == list(range(10))

    calls = []

    def stop() -> None:
        calls.append(1)
        if len(calls) == 3:
            raise Cancelled("stop")

    with pytest.raises(Cancelled):
        mix(tmp_path / "other.wav", placed, load, duration=40, while_running=stop)
    assert [file.name for file in tmp_path.iterdir()] == ["dub.wav"]


def test_memory_does_not_grow_with_the_video(tmp_path: Path) -> None:
    peaks = []
    for minutes in (1, 10):
        placed = [Placed(Slot(6 * n, 6 * n + 3), 6.0 * n, 3, 1) for n in range(10 * minutes)]
        tracemalloc.start()
        mix(tmp_path / "dub.wav", placed, lambda _: tone(3), duration=60 * minutes)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()

    assert peaks[1] < 1.2 * peaks[0]


def test_pauses_in_a_noisy_room_do_not_count() -> None:
    noise = np.random.default_rng(1).normal(0, 32768 * 10 ** (-45 / 20), 10 * VOICE).astype(np.int16)
    talk = noise.copy()
    talk[: 2 * VOICE] += tone(2).samples

    assert level(Sound(talk, VOICE)) == pytest.approx(level(tone(2)), abs=0.1)


@pytest.mark.parametrize(("original", "voice"), [(None, -20), (-25.5, -25.5), (-50, -32), (-6, -16)])
def test_a_voice_is_as_loud_as_the_original_within_limits(original: float | None, voice: float) -> None:
    assert voice_level(original) == voice


def test_the_level_of_a_file_is_that_of_its_sound(tmp_path: Path) -> None:
    sound = Sound(np.concatenate([tone(70, rate=8000).samples, np.zeros(80_000, np.int16)]), 8000)
    write_wav(tmp_path / "a.wav", sound)

    assert wav_level(tmp_path / "a.wav") == pytest.approx(level(sound), abs=0.01)
    assert level(Sound(np.zeros(100, np.int16), 8000)) == float("-inf")
