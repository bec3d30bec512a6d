"""What steps work with: settings, tables, objects and engines, each made once for a process."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from functools import cached_property

from stagepost import App
from stagepost_dubbing.engines.careful import CarefulTranslator
from stagepost_dubbing.engines.choose import choose_recogniser, choose_translator, choose_voice
from stagepost_dubbing.engines.interfaces import Recogniser, Voice
from stagepost_dubbing.media.ffmpeg import Ffmpeg, find_ffmpeg
from stagepost_dubbing.objects import Objects
from stagepost_dubbing.settings import DubbingSettings
from stagepost_dubbing.tables.database import Database

__all__ = ["Services"]


class Services:
    """Made at first use, so that a worker of one queue needs the engine of that queue alone."""

    def __init__(self, app: App, settings: DubbingSettings, environment: Mapping[str, str]) -> None:
        self.app, self.settings = app, settings
        self.database = Database(app)
        self._environment = environment

    @cached_property
    def objects(self) -> Objects:
        """Where videos and sounds are."""
        return Objects(self.settings.objects_url)

    @cached_property
    def ffmpeg(self) -> Ffmpeg:
        """What takes videos apart and puts them together."""
        return find_ffmpeg()

    @cached_property
    def recogniser(self) -> Recogniser:
        """What writes down what is said."""
        return choose_recogniser(self.settings.recogniser, self._environment)

    @cached_property
    def translator(self) -> CarefulTranslator:
        """What translates, with care around it."""
        return choose_translator(self.settings.translator, self._environment)

    @cached_property
    def voice(self) -> Voice:
        """What speaks."""
        return choose_voice(self.settings.voice, self._environment)

    def check(self, queues: Collection[str]) -> None:
        """Raise ConfigurationError now, rather than fail jobs later, if something is missing that these queues need."""
        needs: dict[str, Callable[[], object]] = {
            "extract_audio": lambda: self.ffmpeg,
            "asr": lambda: self.recogniser,
            "translate": lambda: self.translator,
            "tts": lambda: self.voice,
            "mux_video": lambda: self.ffmpeg,
        }
        for queue in queues:
            if queue in needs:
                needs[queue]()
