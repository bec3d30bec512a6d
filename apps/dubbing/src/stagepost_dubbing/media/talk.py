"""Creates a short English talk with a known script, for the demo and for tests."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path

import msgspec
import numpy as np

from stagepost.errors import ConfigurationError
from stagepost_dubbing.engines.espeak import EspeakVoice
from stagepost_dubbing.engines.interfaces import Utterance
from stagepost_dubbing.media.ffmpeg import Ffmpeg, tail, whole_file
from stagepost_dubbing.sound import Sound, Wave, resampled, to_samples, to_wave, write_wav

__all__ = ["SCRIPT", "Speak", "Talk", "make_talk", "speaker"]

SCRIPT = (
    "Welcome to this short talk about bread.",
    "People have been baking it for thousands of years.",
    "You need only wheat, water, salt, and patience.",
    "First, mix the flour with warm water, and let it rest for half an hour.",
    "Then add the salt, and fold the dough with wet hands.",
    "Nobody has to work hard here.",
    "The dough becomes strong while you do something else.",
    "After three hours it is twice as large as before.",
    "Put it in a very hot oven, and close the door.",
    "The smell will soon fill the whole house.",
    "My grandmother knew without a clock when it was ready.",
    "She knocked on the crust, and listened.",
    "A good bread answers like a drum.",
    "Wait until the bread is cold before you cut it.",
    "The first slice is always the best one.",
    "If some of it is left, keep it in a wooden box.",
    "Share it with your neighbors, because fresh bread makes friends.",
    "Tomorrow we will talk about cheese.",
    "Thank you very much for listening.",
)
"""As many sentences as fit are spoken."""

RATE = 48_000
_FIRST = 0.5
_PAUSE = 0.7
_LOUD = np.float32(0.01)

Speak = Callable[[str], Sound]


class Talk(msgspec.Struct, frozen=True):
    """A video, and what is said in it."""

    path: Path
    seconds: int
    sentences: tuple[Utterance, ...]


def make_talk(ffmpeg: Ffmpeg, path: Path, *, seconds: int = 27, speak: Speak | None = None) -> Talk:
    """Write a talk of `seconds` as MP4; the result is always the same."""
    track, sentences = _record(speak or speaker(), seconds)
    with tempfile.TemporaryDirectory(prefix="stagepost-") as folder, whole_file(path) as part:
        sound = Path(folder, "talk.wav")
        write_wav(sound, track)
        _film(ffmpeg, sound, part, seconds)
    return Talk(path, seconds, sentences)


def speaker() -> Speak:
    """Return the best installed English voice."""
    try:
        from hibari import Hibari  # noqa: PLC0415 - an extra
    except ImportError:
        return _espeak()
    hibari = Hibari()
    return lambda text: Sound(to_samples(hibari(text, seed=0)), 24_000)


def _espeak() -> Speak:
    try:
        voice = EspeakVoice()
    except ConfigurationError as error:
        raise ConfigurationError(
            "No voice for a talk is installed. Run `pip install 'stagepost-dubbing[talks]'`, or use your own video."
        ) from error

    def speak(text: str) -> Sound:
        said = voice.speak(text, language="en", speaker="default", seconds=None)
        return Sound.from_pcm(said.samples, said.rate)

    return speak


def _record(speak: Speak, seconds: int) -> tuple[Sound, tuple[Utterance, ...]]:
    track = np.zeros(seconds * RATE, dtype=np.float32)
    sentences: list[Utterance] = []
    start = _FIRST
    for text in SCRIPT:
        said = _spoken(speak(text))
        end = start + len(said) / RATE
        if end + _PAUSE / 2 > seconds:
            break
        track[round(start * RATE) :][: len(said)] = said
        sentences.append(Utterance(start, round(end, 3), text))
        start = round(end + _PAUSE, 1)
    return Sound(to_samples(track), RATE), tuple(sentences)


def _spoken(sound: Sound) -> Wave:
    """Remove the silence around a speech, so that it starts at the script's time."""
    numbers = resampled(to_wave(sound.samples), sound.rate, RATE)
    loud = np.flatnonzero(np.abs(numbers) > _LOUD)
    return numbers[loud[0] : loud[-1] + 1] if len(loud) else numbers


def _film(ffmpeg: Ffmpeg, sound: Path, path: Path, seconds: int) -> None:
    picture = ["-f", "lavfi", "-i", f"testsrc2=size=320x180:rate=25:duration={seconds}"]
    encoded = ["-c:a", "aac", "-b:a", "96k", "-pix_fmt", "yuv420p", "-bitexact", "-threads", "1"]
    written = ["-movflags", "+faststart", "-f", "mp4", str(path)]
    log = ""
    for codec in (["libx264", "-preset", "veryfast"], ["mpeg4"]):  # Some builds of ffmpeg have no x264.
        arguments = ["-v", "error", *picture, "-i", str(sound), "-c:v", *codec, *encoded, *written]
        done = ffmpeg.run(arguments, seconds=300)
        if done.code == 0:
            return
        log = done.log
    raise ConfigurationError(f"{ffmpeg.program} can encode neither H.264 nor MPEG-4 video.{tail(log)}")
