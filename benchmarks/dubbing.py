"""Measure what dubbing costs beside the bare calls of the same engines, and many videos at once.

    python -m benchmarks.dubbing [--rounds R] [--videos N] [--parts talk own many]

`talk`: a talk of 60 s, bare and through the platform, by a process that has just started (cold) and by the same one
again and again (warm, the median). `own`: the same with recorded answers instead of engines, which leaves the CPU time
of what is around them. `many`: talks of 10 s at once, by one process that takes one step at a time, one that takes
several, and two; and bare, one after the other.
Prints each sample and the medians; ends with an error if a video was not done.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any
from uuid import uuid4

from benchmarks.dubbing_replay import replay_variables
from benchmarks.kit.processes import cpu_seconds, memory_bytes
from stagepost_dubbing import Dubbing
from stagepost_dubbing.media.ffmpeg import find_ffmpeg
from stagepost_dubbing.media.talk import make_talk, speaker

TALK_SECONDS, SHORT_SECONDS = 60, 10
REPEATS = 5
"""How often a process dubs the same talk again, because single times vary too much."""
LIMIT = 600.0
TARGETS = {
    "warm, seconds / bare": 1.15,
    "cold, seconds / bare": 1.15,
    "own CPU / all CPU": 0.03,
    "own seconds, on top of all / all": 1.15,
}

WAYS: dict[str, tuple[int, list[str]]] = {
    "1 process, 1 step at once": (1, ["--concurrency", "1"]),
    "1 process": (1, []),
    "2 processes": (2, []),
}
"""Processes, and their options, of each way to dub many at once."""

Sample = dict[str, float]


class Place:
    """A directory with an empty database and empty objects, and the workers for it."""

    def __init__(self, directory: Path, variables: Mapping[str, str] | None = None) -> None:
        directory.mkdir()
        self._directory = directory
        self._variables = {**os.environ, **(variables or {}), "DUBBING_HOME": str(directory / "home")}
        self.dubbing = Dubbing(environment=self._variables)

    def submit(self, video: Path) -> str:
        """Ask for a video under a new id."""
        return self.dubbing.submit(video, to="pt", id=str(uuid4())).id

    def seconds_of(self, task_id: str, *, since: float | None = None) -> float:
        """From its beginning, or a time of day, to its end."""
        task = self.dubbing.wait(task_id, timeout=LIMIT)
        if task.status != "done" or task.finished_at is None:
            raise RuntimeError(f"task {task_id} is {task.status}: {task.error}")
        return task.finished_at / 1e6 - (task.created_at / 1e6 if since is None else since)

    @contextmanager
    def workers(self, processes: int = 1, *options: str) -> Iterator[list[int]]:
        """Run processes."""
        command = [sys.executable, "-m", "stagepost_dubbing", "worker", "--log-level", "error", *options]
        running = [subprocess.Popen(command, env=self._variables) for _ in range(processes)]
        try:
            yield [process.pid for process in running]
        finally:
            for process in running:
                process.terminate()
            for process in running:
                process.wait(LIMIT)
            self.dubbing.close()


def bare(directory: Path, video: Path, times: int, variables: Mapping[str, str] | None = None) -> list[Sample]:
    """Dub a video several times in one process; the first time counts from its start."""
    directory.mkdir(exist_ok=True)
    began_at = time.time()
    command = [sys.executable, "-m", "benchmarks.dubbing_bare", str(directory), *[str(video)] * times]
    done = subprocess.run(command, env={**os.environ, **(variables or {})}, stdout=subprocess.PIPE, check=True)
    lines: list[dict[str, Any]] = [json.loads(line) for line in done.stdout.splitlines()]
    lines[0]["seconds"] = lines[0]["ended_at"] - began_at
    return with_cpu_since_the_last(lines)


def platform(directory: Path, video: Path, times: int, variables: Mapping[str, str] | None = None) -> list[Sample]:
    """Dub it as often by a worker process, one after the other; the first time counts from the worker's start."""
    place = Place(directory, variables)
    lines: list[Sample] = []
    first, began_at = place.submit(video), time.time()
    with place.workers() as pids:
        for number in range(times):
            task_id = place.submit(video) if number else first
            seconds = place.seconds_of(task_id, since=None if number else began_at)
            lines.append({"seconds": seconds, "cpu_seconds": cpu_seconds(pids)})
    return with_cpu_since_the_last(lines)


def with_cpu_since_the_last(lines: list[dict[str, Any]]) -> list[Sample]:
    """Take each video's share of a count that only grows."""
    before = 0.0
    samples = []
    for line in lines:
        samples.append({"seconds": line["seconds"], "cpu_seconds": line["cpu_seconds"] - before})
        before = line["cpu_seconds"]
    return samples


def measure_talk(directory: Path, video: Path) -> dict[str, Sample]:
    """Take one sample of everything about one talk."""
    samples = {}
    for name, way in (("bare", bare), ("platform", platform)):
        cold, *warm = way(directory / f"{name}-{uuid4()}", video, 1 + REPEATS)
        samples[f"cold {name}"] = cold
        samples[f"warm {name}"] = {fact: median(one[fact] for one in warm) for fact in cold}
    return samples


def measure_own(directory: Path, video: Path) -> dict[str, Sample]:
    """Compare the overhead around the engines: one real talk, then several with recorded answers."""
    recorded = directory / f"recorded-{uuid4()}"
    samples = {"engines and all": bare(recorded, video, 2)[1]}
    variables = replay_variables(recorded / "answers.json")
    for name, way in (("bare", bare), ("platform", platform)):
        taken = way(directory / f"{name}-{uuid4()}", video, REPEATS + 1, variables)[1:]
        samples[f"without engines, {name}"] = {
            fact: sum(one[fact] for one in taken) / len(taken) for fact in ("seconds", "cpu_seconds")
        }
    return samples


def measure_many(directory: Path, video: Path, videos: int) -> dict[str, Sample]:
    """Dub many at once; memory is looked at whenever one is done."""
    taken = bare(directory / f"bare-{uuid4()}", video, videos)
    facts = ("seconds", "cpu_seconds")
    samples = {"bare, one after the other": {fact: sum(one[fact] for one in taken) for fact in facts}}
    for name, (processes, options) in WAYS.items():
        place = Place(directory / str(uuid4()))
        ids = [place.submit(video) for _ in range(videos)]
        began_at, memory = time.time(), list[int]()
        with place.workers(processes, *options) as pids:
            while (done := len(place.dubbing.tasks(status="done", most=videos))) < videos:
                if done > len(memory):
                    memory += [memory_bytes(pids)] * (done - len(memory))
                for task in place.dubbing.tasks(status="failed"):
                    place.seconds_of(task.id)
                time.sleep(0.2)
            seconds = max(place.seconds_of(task_id, since=began_at) for task_id in ids)
            memory += [memory_bytes(pids)] * (videos - len(memory))
            third = max(1, videos // 3)
            samples[name] = {
                "seconds": seconds,
                "cpu_seconds": cpu_seconds(pids),
                "MiB, first third": median(memory[:third]) / 2**20,
                "MiB, last third": median(memory[-third:]) / 2**20,
            }
    return samples


def ratios(samples: Mapping[str, Sample]) -> dict[str, float]:
    """The ratios that have targets, and other ratios of interest."""
    found = {}
    for state in ("warm", "cold"):
        if f"{state} bare" in samples:
            one, other = samples[f"{state} platform"], samples[f"{state} bare"]
            found[f"{state}, seconds / bare"] = one["seconds"] / other["seconds"]
            found[f"{state}, CPU / bare"] = one["cpu_seconds"] / other["cpu_seconds"]
    if "engines and all" in samples:
        names = ("without engines, platform", "without engines, bare", "engines and all")
        with_platform, without, everything = (samples[name]["cpu_seconds"] for name in names)
        own = with_platform - without
        found["own CPU / all CPU"] = own / (everything + own)
        with_platform, without, everything = (samples[name]["seconds"] for name in names)
        found["own seconds, on top of all / all"] = (everything + with_platform - without) / everything
    if "2 processes" in samples:
        for name in WAYS:
            seconds = samples[name]["seconds"]
            found[f"{name}, seconds / bare"] = seconds / samples["bare, one after the other"]["seconds"]
            found[f"{name}, cores in use"] = samples[name]["cpu_seconds"] / seconds
            found[f"{name}, memory of last third / first"] = (
                samples[name]["MiB, last third"] / samples[name]["MiB, first third"]
            )
    return found


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="benchmarks.dubbing", description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--videos", type=int, default=20)
    parser.add_argument("--parts", nargs="+", choices=("talk", "own", "many"), default=["talk", "own", "many"])
    options = parser.parse_args()
    found: dict[str, list[float]] = {}
    with TemporaryDirectory(prefix="stagepost-benchmark-") as name:
        directory, voice = Path(name), speaker()
        talk, short = directory / "talk.mp4", directory / "short.mp4"
        for video, seconds in ((talk, TALK_SECONDS), (short, SHORT_SECONDS)):
            make_talk(find_ffmpeg(), video, seconds=seconds, speak=voice)
        for number in range(options.rounds):
            samples: dict[str, Sample] = {}
            if "talk" in options.parts:
                samples |= measure_talk(directory, talk)
            if "own" in options.parts:
                samples |= measure_own(directory, talk)
            if "many" in options.parts and number == 0:
                samples |= measure_many(directory, short, options.videos)
            for title, facts in samples.items():
                told = ", ".join(f"{fact.replace('_', ' ')} {value:.2f}" for fact, value in facts.items())
                print(f"round {number + 1}: {title}: {told} (load {os.getloadavg()[0]:.1f})", flush=True)
            for title, value in ratios(samples).items():
                found.setdefault(title, []).append(value)
    for title, values in found.items():
        target = f" (target <= {TARGETS[title]})" if title in TARGETS else ""
        print(f"{title}: {median(values):.3f}{target}")


if __name__ == "__main__":
    main()
