"""Engines are loaded at first use, and the first use may be by many threads at once."""

from __future__ import annotations

import subprocess
import sys

SPEAK_AT_ONCE = """
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

from stagepost_dubbing.engines.espeak import EspeakVoice

voice, barrier = EspeakVoice(), Barrier(8)

def speak(number):
    barrier.wait()
    return voice.speak(f"Bom dia, número {number}.", language="pt", speaker="default", seconds=None).seconds

with ThreadPoolExecutor(8) as pool:
    assert min(pool.map(speak, range(8))) > 0.5
"""


def test_many_threads_may_be_the_first_to_speak() -> None:
    for _ in range(3):
        run = subprocess.run([sys.executable, "-c", SPEAK_AT_ONCE], capture_output=True, text=True, check=False)

        assert run.returncode == 0, run.stderr[-2000:]
