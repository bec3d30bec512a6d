"""Dub videos by bare calls of the same engines in one script: no database, no objects, no jobs, nothing kept.

    python -m benchmarks.dubbing_bare DIRECTORY VIDEO...

Prints a line of JSON for each video: when it was done, how long that took, and the CPU time of the process until then.
"""

from __future__ import annotations

import json
import os
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from benchmarks.dubbing_replay import Answers
from stagepost_dubbing import DubbingSettings
from stagepost_dubbing.engines.choose import choose_recogniser, choose_translator, choose_voice
from stagepost_dubbing.engines.interfaces import Speech, Utterance
from stagepost_dubbing.media.extracting import extract_audio
from stagepost_dubbing.media.ffmpeg import find_ffmpeg
from stagepost_dubbing.media.mixing import mix
from stagepost_dubbing.media.muxing import mux
from stagepost_dubbing.media.timeline import Slot, place
from stagepost_dubbing.sound import Sound

SECONDS = 600.0


class Bare:
    """The engines, and one call after the other; only speech has several at once, as in the application."""

    def __init__(self, settings: DubbingSettings) -> None:
        self._settings = settings
        self._ffmpeg = find_ffmpeg()
        self._recogniser = choose_recogniser(settings.recogniser, os.environ)
        self._translator = choose_translator(settings.translator, os.environ)
        self._voice = choose_voice(settings.voice, os.environ)
        self.answers = Answers([], {}, {})
        """What the engines said about the last video."""

    def dub(self, video: Path, directory: Path, *, source: str = "en", target: str = "pt") -> None:
        """Dub a video into a file in the directory."""
        audio, track, output = (directory / name for name in ("source.wav", "dub.wav", "final.mp4"))
        facts = extract_audio(self._ffmpeg, video, audio, seconds=SECONDS)
        said = list(self._recogniser.recognise(audio, language=source, while_running=lambda _progress: None))
        texts = self._translated([one.text for one in said], source, target)
        speeches = self._spoken(said, texts, target)
        slots = [Slot(one.start, one.end) for one in said]
        placed = place(slots, [speech.seconds for speech in speeches], duration=facts.duration)
        sounds = [Sound.from_pcm(speech.samples, speech.rate) for speech in speeches]
        mix(track, placed, sounds.__getitem__, duration=facts.duration)
        mux(self._ffmpeg, video, track, output, language=target, seconds=SECONDS)
        self.answers = Answers(
            said, dict(zip((one.text for one in said), texts, strict=True)), dict(zip(texts, speeches, strict=True))
        )

    def _translated(self, texts: list[str], source: str, target: str) -> list[str]:
        size = self._settings.translate_batch_size
        found: list[str] = []
        for first in range(0, len(texts), size):
            found += self._translator.translate(texts[first : first + size], source=source, target=target)
        return found

    def _spoken(self, said: list[Utterance], texts: list[str], target: str) -> list[Speech]:
        def speak(one: Utterance, text: str) -> Speech:
            return self._voice.speak(text, language=target, speaker="default", seconds=one.end - one.start)

        with ThreadPoolExecutor(self._settings.tts_max_concurrency) as pool:
            return list(pool.map(speak, said, texts))


def main() -> None:
    """Dub what the arguments name."""
    directory = Path(sys.argv[1])
    bare = Bare(DubbingSettings.load())
    for video in sys.argv[2:]:
        began = time.perf_counter()
        bare.dub(Path(video), directory)
        seconds, times = time.perf_counter() - began, os.times()
        cpu = times.user + times.system + times.children_user + times.children_system
        bare.answers.save(directory / "answers.json")
        print(json.dumps({"ended_at": time.time(), "seconds": seconds, "cpu_seconds": cpu}), flush=True)


if __name__ == "__main__":
    main()
