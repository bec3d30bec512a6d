"""What steps work with: settings, tables, objects and engines, each made once for a process."""

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
    """Made at first use, so that a worker of one queue needs the engine of that queue alone."""

    def __init__(self, app: App, settings: DubbingSettings, environment: Mapping[str, str]) -> None:
        self.app, self.settings = app, settings
        self.database = Database(app)
        self._environment = environment
        self._made: dict[str, object] = {}
        self._making = Lock()

    @property
    def objects(self) -> Objects:
        """Where videos and sounds are."""
        return self._once("objects", lambda: Objects(self.settings.objects_url))

    @property
    def ffmpeg(self) -> Ffmpeg:
        """What takes videos apart and puts them together."""
        return self._once("ffmpeg", find_ffmpeg)

    @property
    def recogniser(self) -> Recogniser:
        """What writes down what is said."""
        return self._once("recogniser", lambda: choose_recogniser(self.settings.recogniser, self._environment))

    @property
    def translator(self) -> CarefulTranslator:
        """What translates, with care around it."""
        return self._once("translator", lambda: choose_translator(self.settings.translator, self._environment))

    @property
    def voice(self) -> Voice:
        """What speaks."""
        return self._once("voice", lambda: choose_voice(self.settings.voice, self._environment))

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

    def _once(self, name: str, make: Callable[[], T]) -> T:
        """Make something at first use, in whatever thread that is."""
        with self._making:
            if name not in self._made:
                self._made[name] = make()
            made: T = self._made[name]  # type: ignore[assignment]  # it was made by the same function
            return made
