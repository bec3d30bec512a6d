"""Bindings to the parts of the C library espeak-ng that a voice needs.

The library has one global state, so only one thread at a time may use it. A sentence takes about 10 ms, so a lock is
cheaper than processes. Licence: GPL 3 or later, which is why it must be selected by name and is loaded on first use.
"""

from __future__ import annotations

import ctypes
import functools
import itertools
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from stagepost import Permanent, Retryable
from stagepost.errors import ConfigurationError
from stagepost_dubbing.engines.packages import import_engine

__all__ = ["Espeak", "espeak"]

# From speak_lib.h
SYNCHRONOUS = 2
DO_NOT_EXIT = 0x8000
UTF8 = 1
RATE_PARAMETER = 1
POSITION_CHARACTER = 1


class _Voice(ctypes.Structure):
    _fields_ = (
        ("name", ctypes.c_char_p),
        ("languages", ctypes.c_char_p),
        ("identifier", ctypes.c_char_p),
        ("gender", ctypes.c_ubyte),
        ("age", ctypes.c_ubyte),
        ("variant", ctypes.c_ubyte),
        ("unused", ctypes.c_ubyte),
        ("score", ctypes.c_int),
        ("spare", ctypes.c_void_p),
    )


_Receive = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(ctypes.c_short), ctypes.c_int, ctypes.c_void_p)


def espeak() -> Espeak:
    """Load the library once per process, safely from any thread."""
    with _loading:
        return _loaded()


_loading = threading.Lock()


@functools.cache
def _loaded() -> Espeak:
    return Espeak()


class Espeak:
    """The loaded library; created only by `espeak()`."""

    def __init__(self) -> None:
        loader = import_engine("espeakng_loader", extra="espeak")
        self._library = _load(loader.get_library_path)
        data = Path(loader.get_data_path())
        self._lock = threading.Lock()
        self._heard: list[bytes] = []
        self._receive = _Receive(self._keep)  # The library keeps no reference, so this one must stay alive.
        self.rate = int(self._library.espeak_Initialize(SYNCHRONOUS, 0, str(data).encode(), DO_NOT_EXIT))
        if self.rate <= 0:
            raise ConfigurationError("espeak-ng found no voices; install espeakng-loader again")
        self._library.espeak_SetSynthCallback(self._receive)
        self.voices = dict(_voices(self._library))
        """The name of the voice for each language."""
        self.variants = frozenset(path.name for path in (data / "voices" / "!v").iterdir())

    def say(self, text: str, *, voice: str, words_per_minute: int) -> bytes:
        """Return the sound of a text: 16-bit mono, `rate` samples per second."""
        spoken = text.replace("\0", " ").encode() + b"\0"
        with self._lock:
            if self._library.espeak_SetVoiceByName(voice.encode()) != 0:
                raise Permanent(f"espeak-ng has no voice {voice!r}")
            self._library.espeak_SetParameter(RATE_PARAMETER, words_per_minute, 0)
            self._heard = []
            failed = self._library.espeak_Synth(
                spoken, ctypes.c_size_t(len(spoken)), 0, POSITION_CHARACTER, 0, UTF8, None, None
            )
            if failed:
                raise Retryable(f"espeak-ng failed with status {failed}")
            return b"".join(self._heard)

    def _keep(self, sound: Any, length: int, _events: Any) -> int:
        if sound and length > 0:
            self._heard.append(ctypes.string_at(sound, length * 2))
        return 0


def _load(find: Callable[[], str]) -> ctypes.CDLL:
    try:
        return ctypes.CDLL(find())
    except OSError as error:
        raise ConfigurationError(f"espeak-ng cannot be loaded on this machine: {error}") from error


def _voices(library: ctypes.CDLL) -> Iterator[tuple[str, str]]:
    """Read the language of each voice (a byte of priority, then the code) and the name of its file."""
    library.espeak_ListVoices.restype = ctypes.POINTER(ctypes.POINTER(_Voice))
    voices = library.espeak_ListVoices(None)
    for at in itertools.count():
        if not voices[at]:
            return
        voice = voices[at].contents
        if b"-Latn-" not in voice.identifier:  # skip second voices for text in Latin letters
            yield voice.languages[1:].decode().lower(), voice.identifier.decode().rpartition("/")[2]
