"""Resources of the steps: settings, tables, objects and engines, each created once per process."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from threading import Lock
from typing import TypeVar

from stagepost import App
from stagepost_dubbing.engines.careful import CarefulTranslator
from stagepost_dubbing.engines.choose import choose_recogniser, choose_translator, choose_voice
from stagepost_dubbing.engines.interfaces import Recogniser, Voice
from stagepost_dubbing.media.ffmpeg import Ffmpeg, find_ffmpeg
from stagepost_dubbing.objects import Objects
from stagepost_dubbing.settings import DubbingSettings
from stagepost_dubbing.tables.database import Database

__all__ = ["Services"]

T = TypeVar("T")


class Services:
    """Creates resources on first use, so that a worker needs only the engines of its own queues."""

    def __init__(self, app: App, settings: DubbingSettings, environment: Mapping[str, str]) -> None:
        self.app, self.settings = app, settings
        self.database = Database(app)
        self._environment = environment
        self._made: dict[str, object] = {}
        self._making = Lock()

    @property
    def objects(self) -> Objects:
        """The store of videos and sounds."""
        return self._once("objects", lambda: Objects(self.settings.objects_url))

    @property
    def ffmpeg(self) -> Ffmpeg:
        """The ffmpeg program."""
        return self._once("ffmpeg", find_ffmpeg)

    @property
    def recogniser(self) -> Recogniser:
        """The engine that transcribes speech."""
        return self._once("recogniser", lambda: choose_recogniser(self.settings.recogniser, self._environment))

    @property
    def translator(self) -> CarefulTranslator:
        """The engine that translates, wrapped in checks and retries."""
        return self._once("translator", lambda: choose_translator(self.settings.translator, self._environment))

    @property
    def voice(self) -> Voice:
        """The engine that speaks."""
        return self._once("voice", lambda: choose_voice(self.settings.voice, self._environment))

    def check(self, queues: Collection[str]) -> None:
        """Raise ConfigurationError now, instead of failing jobs later, if a resource of these queues is missing."""
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

    def _once(self, name: str, make: Callable[[], T]) -> T:
        """Create something on first use, safely from any thread."""
        with self._making:
            if name not in self._made:
                self._made[name] = make()
            made: T = self._made[name]  # type: ignore[assignment]  # it was made by the same function
            return made
