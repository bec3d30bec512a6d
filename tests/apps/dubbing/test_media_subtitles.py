"""Subtitles that players accept: times in order, lines that fit, no word lost."""

from __future__ import annotations

import re
import unicodedata
from itertools import pairwise
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from stagepost_dubbing.engines.interfaces import Utterance
from stagepost_dubbing.media.subtitles import WIDTH, to_srt, to_vtt, wrapped
from tests.apps.dubbing.talks import ffmpeg

words = st.text(st.characters(codec="utf-8", exclude_categories=["Cs"]), max_size=200)


@st.composite
def captions(draw: st.DrawFn) -> list[Utterance]:
    start, found = draw(st.floats(0, 400_000)), []
    for length, pause, text in draw(st.lists(st.tuples(st.floats(0, 30), st.floats(0.002, 30), words), max_size=8)):
        found.append(Utterance(start, start + length, text))
        start += pause
    return found


@settings(max_examples=300)
@given(captions())
def test_times_rise_and_never_overlap(said: list[Utterance]) -> None:
    for written, pattern in ((to_srt(said), _SRT), (to_vtt(said), _VTT)):
        times = [(_milliseconds(groups[:4]), _milliseconds(groups[4:])) for groups in pattern.findall(written)]
        assert len(times) == sum(1 for one in said if _bare(one.text))
        assert all(start < end for start, end in times)
        assert all(end <= following for (_, end), (following, _) in pairwise(times))


def _milliseconds(parts: tuple[str, ...]) -> int:
    return sum(int(part) * scale for part, scale in zip(parts, _SCALES, strict=True))


_SCALES = (3_600_000, 60_000, 1000, 1)
_SRT = re.compile(r"^(\d\d+):(\d\d):(\d\d),(\d{3}) --> (\d\d+):(\d\d):(\d\d),(\d{3})$", re.MULTILINE)
_VTT = re.compile(r"^(\d\d+):(\d\d):(\d\d)\.(\d{3}) --> (\d\d+):(\d\d):(\d\d)\.(\d{3})$", re.MULTILINE)


@settings(max_examples=500)
@given(words)
def test_lines_fit_and_no_character_is_lost(text: str) -> None:
    lines = wrapped(text)

    assert _bare(lines) == _bare(text)
    assert "\n\n" not in lines
    for line in lines.split("\n"):
        assert sum(2 if unicodedata.east_asian_width(one) in "WF" else 1 for one in line) <= WIDTH


def _bare(text: str) -> str:
    return "".join(one for one in "".join(text.split()) if one.isprintable())


def test_subrip_is_numbered_and_leaves_out_what_has_no_words() -> None:
    said = [Utterance(0.5, 2.25, "Bom dia."), Utterance(2.5, 3, "  "), Utterance(3661.001, 3662, "a --> b")]

    assert to_srt(said) == (
        "1\n00:00:00,500 --> 00:00:02,250\nBom dia.\n\n2\n01:01:01,001 --> 01:01:02,000\na -> b\n\n"
    )


def test_webvtt_escapes_marks_and_names_its_language() -> None:
    said = [Utterance(0, 1, "x < y & z --> w")]

    assert to_vtt(said, language="pt") == (
        "WEBVTT\nLanguage: pt\n\n00:00:00.000 --> 00:00:01.000\nx &lt; y &amp; z --&gt; w\n\n"
    )


def test_lines_are_about_equally_long() -> None:
    assert wrapped("First, mix the flour with warm water, and let it rest for half an hour.") == (
        "First, mix the flour with warm water,\nand let it rest for half an hour."
    )
    assert wrapped("一二三四五六七八九十" * 3) == "一二三四五六七八九十" * 2 + "一\n二三四五六七八九十"


def test_ffmpeg_reads_both_kinds(tmp_path: Path) -> None:
    said = [Utterance(0.5, 2, "Bom dia."), Utterance(2.5, 4.25, "Até logo.")]
    for name, text in {"a.srt": to_srt(said), "a.vtt": to_vtt(said, language="pt")}.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
        again = tmp_path / f"{name}.again.srt"
        assert ffmpeg().run(["-i", str(tmp_path / name), str(again)], seconds=10).code == 0
        assert again.read_text(encoding="utf-8").strip() == to_srt(said).strip()
