"""A talk is taken apart and put together again by the real ffmpeg."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from time import perf_counter

import numpy as np
import psutil
import pytest

from stagepost import Cancelled, Retryable
from stagepost.errors import ConfigurationError
from stagepost_dubbing.media.extracting import extract_audio
from stagepost_dubbing.media.ffmpeg import Ffmpeg, find_ffmpeg
from stagepost_dubbing.media.muxing import mux, video_checksum
from stagepost_dubbing.media.probe import probe
from stagepost_dubbing.media.talk import make_talk
from stagepost_dubbing.sound import read_wav
from tests.apps.dubbing.talks import ffmpeg, no_process_stays, talk, voice
from tests.apps.dubbing.workers import wait_until


def test_a_talk_is_what_its_script_says(tmp_path: Path) -> None:
    facts = extract_audio(ffmpeg(), talk(10).path, tmp_path / "talk.wav", seconds=60)
    sound = read_wav(tmp_path / "talk.wav")

    assert (facts.video_codec, facts.audio_codec, facts.width, facts.height) == ("h264", "aac", 320, 180)
    assert facts.duration == pytest.approx(10, abs=0.05)
    assert sound.rate == 16_000
    assert sound.seconds == pytest.approx(10, abs=0.05)
    loud = np.flatnonzero(np.abs(sound.samples) > 600) / sound.rate
    for said in talk(10).sentences:
        first = loud[loud > said.start - 0.3][0]
        assert first == pytest.approx(said.start, abs=0.05)
    assert loud[-1] == pytest.approx(talk(10).sentences[-1].end, abs=0.1)


def test_the_same_talk_comes_out_every_time(tmp_path: Path) -> None:
    again = make_talk(ffmpeg(), tmp_path / "again.mp4", seconds=10, speak=voice())

    assert again.sentences == talk(10).sentences
    assert again.path.read_bytes() == talk(10).path.read_bytes()


def test_espeak_gives_the_talk_where_the_better_voice_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "hibari", None)

    made = make_talk(ffmpeg(), tmp_path / "talk.mp4", seconds=10)

    assert made.sentences[0].text == talk(10).sentences[0].text
    assert len(made.sentences) >= 2
    extract_audio(ffmpeg(), made.path, tmp_path / "talk.wav", seconds=60)

    monkeypatch.setitem(sys.modules, "espeakng_loader", None)
    with pytest.raises(ConfigurationError, match=r"stagepost-dubbing\[talks\]"):
        make_talk(ffmpeg(), tmp_path / "other.mp4", seconds=10)


@pytest.mark.parametrize("original", [None, "en"])
def test_the_picture_is_untouched_and_the_sound_replaced(tmp_path: Path, original: str | None) -> None:
    source, track, output = talk(10).path, tmp_path / "dub.wav", tmp_path / "final.mp4"
    extract_audio(ffmpeg(), source, track, seconds=60, rate=48_000)

    facts = mux(ffmpeg(), source, track, output, language="pt-BR", seconds=60, original=original)

    assert video_checksum(ffmpeg(), output) == video_checksum(ffmpeg(), source)
    assert facts == probe(ffmpeg(), output)
    assert facts.duration == pytest.approx(10, abs=0.1)
    assert facts.audio_tracks == (1 if original is None else 2)
    log = ffmpeg().run(["-i", str(output)], seconds=60).log
    assert "(por): Audio: aac" in log
    assert ("(eng): Audio: aac" in log) == (original is not None)
    assert output.read_bytes().index(b"moov") < output.read_bytes().index(b"mdat")
    assert sorted(file.name for file in tmp_path.iterdir()) == ["dub.wav", "final.mp4"]


def test_a_checksum_notices_another_picture() -> None:
    assert video_checksum(ffmpeg(), talk(10).path) != video_checksum(ffmpeg(), talk(27).path)


def test_a_deadline_ends_ffmpeg(tmp_path: Path) -> None:
    stuck = tmp_path / "ffmpeg"
    stuck.write_text("#!/bin/sh\nexec sleep 200\n")
    stuck.chmod(0o755)
    for program in (ffmpeg(), Ffmpeg(str(stuck))):
        began = perf_counter()
        with no_process_stays(), pytest.raises(Retryable, match="took longer than"):
            program.run(_FOREVER, seconds=0.3)
        assert perf_counter() - began < 100


_DYING_WORKER = """
import os, psutil, signal
from stagepost_dubbing.media.ffmpeg import Ffmpeg

def die():
    [child] = psutil.Process().children()
    while child.exe() != program.program:
        pass
    print(child.pid, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)

program = {program!r}
program.run({arguments!r}, seconds={seconds}, while_running=die)
"""


def orphan_of_a_killed_worker(program: Ffmpeg, arguments: list[str], *, seconds: float) -> int:
    """Let a process be killed while its ffmpeg runs, and give the id of what is left of that."""
    script = _DYING_WORKER.format(program=program, arguments=arguments, seconds=seconds)
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) as worker:
        assert worker.stdout is not None
        orphan = int(worker.stdout.readline())
        assert worker.wait() == -signal.SIGKILL
    return orphan


def test_ffmpeg_ends_with_a_worker_that_is_killed() -> None:
    assert ffmpeg().guard, "setpriv is part of every Linux that tests run on"

    orphan = orphan_of_a_killed_worker(ffmpeg(), _FOREVER, seconds=1000)

    wait_until(lambda: not psutil.pid_exists(orphan))


def test_ffmpeg_without_a_guard_ends_soon_after_a_worker_that_is_killed(tmp_path: Path) -> None:
    beginning = tmp_path / "beginning"
    os.mkfifo(beginning)  # it waits for this, and uses up no time before its worker is killed
    arguments = ["-f", "s16le", "-i", str(beginning), *_FOREVER[:4], "-map", "1", *_FOREVER[4:]]

    orphan = orphan_of_a_killed_worker(Ffmpeg(ffmpeg().program), arguments, seconds=0.9)
    assert psutil.pid_exists(orphan)
    beginning.write_bytes(bytes(100_000))

    wait_until(lambda: not psutil.pid_exists(orphan))


def test_a_job_that_should_stop_ends_ffmpeg() -> None:
    calls = []

    def stop() -> None:
        calls.append(1)
        if len(calls) == 3:
            raise Cancelled("stop")

    with no_process_stays(), pytest.raises(Cancelled):
        ffmpeg().run(_FOREVER, seconds=60, while_running=stop)
    assert len(calls) == 3


def test_a_missing_program_is_named() -> None:
    with pytest.raises(ConfigurationError, match=r"There is no no-such-ffmpeg\. Install"):
        find_ffmpeg("no-such-ffmpeg")
    with pytest.raises(ConfigurationError, match="cannot be started"):
        Ffmpeg("/no/such/ffmpeg").run([], seconds=1)
    with pytest.raises(ConfigurationError, match=r"cannot be started: .*No such file"):
        Ffmpeg("/no/such/ffmpeg", ffmpeg().guard).run([], seconds=60)


_FOREVER = ["-f", "lavfi", "-i", "anullsrc", "-f", "null", "-"]
