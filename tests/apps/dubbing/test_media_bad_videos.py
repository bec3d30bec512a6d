"""Each bad file gets a clear sentence, no second try, and leaves nothing behind; what only looks bad works."""

from __future__ import annotations

import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from stagepost import Permanent, Retryable
from stagepost_dubbing.media.extracting import extract_audio
from stagepost_dubbing.media.ffmpeg import Ffmpeg, reading
from stagepost_dubbing.media.muxing import mux, video_checksum
from stagepost_dubbing.media.probe import Limits, probe
from stagepost_dubbing.sound import read_wav, wav_seconds
from tests.apps.dubbing.bad_videos import BAD, GOOD, Case, sources
from tests.apps.dubbing.talks import ffmpeg, no_process_stays, talk


@pytest.fixture(autouse=True)
def nothing_left_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No process and no temporary file outlives a test."""
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    sources()
    monkeypatch.setattr(tempfile, "tempdir", None)
    monkeypatch.setenv("TMPDIR", str(temporary))
    with no_process_stays():
        yield
    assert list(temporary.iterdir()) == []


def names(cases: list[Case]) -> list[str]:
    return [case.name.replace("\0", "NUL").replace("\n", "NEWLINE") for case in cases]


def test_the_corpus_is_large() -> None:
    assert len(BAD) >= 25


@pytest.mark.parametrize("case", BAD, ids=names(BAD))
def test_a_bad_video_is_refused_with_a_sentence(tmp_path: Path, case: Case) -> None:
    folder = tmp_path / "work"
    folder.mkdir()
    (folder / "secret.mp4").write_bytes(talk(10).path.read_bytes())
    case.make(folder / case.name)
    before = sorted(folder.iterdir())

    with pytest.raises(Permanent, match=case.sentence) as refused:
        extract_audio(ffmpeg(), folder / case.name, folder / "source.wav", seconds=60)

    assert sorted(folder.iterdir()) == before
    assert len(str(refused.value)) < 600
    assert " 0x" not in str(refused.value)
    assert str(tmp_path) not in str(refused.value).replace(repr(str(folder / case.name)), "")


@pytest.mark.parametrize("case", GOOD, ids=names(GOOD))
def test_what_only_looks_bad_is_dubbed(tmp_path: Path, case: Case) -> None:
    folder = tmp_path / "work"
    folder.mkdir()
    video, sound, output = folder / case.name, folder / "source.wav", folder / "final.mp4"
    case.make(video)

    facts = extract_audio(ffmpeg(), video, sound, seconds=60, rate=48_000)
    made = mux(ffmpeg(), video, sound, output, language="pt", seconds=60, original="en")

    assert facts.duration == pytest.approx(3, abs=0.6)
    assert wav_seconds(sound) == pytest.approx(min(3, facts.duration), abs=0.1)
    assert made.duration == pytest.approx(facts.duration, abs=0.6 if case.name == "longer-header.mp4" else 0.1)
    assert made.audio_tracks == 2
    assert video_checksum(ffmpeg(), output) == video_checksum(ffmpeg(), video)
    assert sorted(folder.iterdir()) == sorted([video, sound, output])


def test_sound_that_starts_after_the_picture_stays_where_it_is(tmp_path: Path) -> None:
    late = tmp_path / "late.mkv"
    arguments = ["-i", str(talk(10).path), "-itsoffset", "0.7", "-i", str(talk(10).path), "-map", "0:v", "-map", "1:a"]
    assert ffmpeg().run([*arguments, "-c", "copy", str(late)], seconds=60).code == 0

    extract_audio(ffmpeg(), late, tmp_path / "late.wav", seconds=60)
    extract_audio(ffmpeg(), talk(10).path, tmp_path / "usual.wav", seconds=60)

    shifted, usual = read_wav(tmp_path / "late.wav"), read_wav(tmp_path / "usual.wav")
    first = [int(np.argmax(abs(sound.samples.astype(int)) > 600)) / sound.rate for sound in (shifted, usual)]
    assert first[0] - first[1] == pytest.approx(0.7, abs=0.02)


def test_no_address_in_a_file_is_called(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.setblocking(False)
        port = server.getsockname()[1]
        video = tmp_path / "playlist.mp4"
        video.write_text(
            f"#EXTM3U\n#EXT-X-TARGETDURATION:9\n#EXTINF:9,\nhttp://127.0.0.1:{port}/a.ts\n#EXT-X-ENDLIST\n"
        )

        with pytest.raises(Permanent):
            extract_audio(ffmpeg(), video, tmp_path / "source.wav", seconds=60)

        with pytest.raises(BlockingIOError):
            server.accept()


def test_limits_can_be_lower(tmp_path: Path) -> None:
    for limits, sentence in (
        (Limits(longest=5), "states a length of 10 s; the limit is 5 s"),
        (Limits(largest=1000), "bytes; the limit is 1,000"),
        (Limits(most_pixels=1000), "its picture is 320x180, more than 1,000 pixels"),
    ):
        with pytest.raises(Permanent, match=sentence):
            extract_audio(ffmpeg(), talk(10).path, tmp_path / "source.wav", seconds=60, limits=limits)


@pytest.mark.parametrize(
    ("script", "error", "sentence"),
    [
        ("kill -SEGV $$", Permanent, r"ffmpeg crashed on talk10\.mp4\. Convert it first"),
        ("kill -KILL $$", Retryable, "was killed"),
        ("echo 'av_interleaved_write_frame(): No space left on device' >&2; exit 1", Retryable, "the disk is full"),
        ("exec sleep 60", Retryable, "took longer than 0.5 s and was stopped"),
    ],
)
def test_what_is_not_the_files_fault_is_tried_again(
    tmp_path: Path, script: str, error: type[Exception], sentence: str
) -> None:
    program = tmp_path / "ffmpeg"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)

    with pytest.raises(error, match=sentence):
        probe(Ffmpeg(str(program)), talk(10).path, seconds=0.5 if "sleep" in script else 60)


def test_a_transport_stream_is_read_or_its_crash_is_told(tmp_path: Path) -> None:
    """The build of ffmpeg in imageio-ffmpeg crashes on the names of programs in it; others read it."""
    video = tmp_path / "talk.ts"
    assert ffmpeg().run(["-i", str(talk(10).path), "-c", "copy", str(video)], seconds=60).code == 0

    try:
        facts = extract_audio(ffmpeg(), video, tmp_path / "source.wav", seconds=60)
    except Permanent as crash:
        assert "crashed on talk.ts" in str(crash)  # noqa: PT017
    else:
        assert facts.duration == pytest.approx(10, abs=0.2)


def test_options_open_one_file_only() -> None:
    options = reading(Path("/tmp/a.mp4"))  # noqa: S108

    assert options[:2] == ["-protocol_whitelist", "file"]
    assert not {"hls", "concat", "dash", "sdp", "image2", "lavfi", "imf"} & set(options[3].split(","))
