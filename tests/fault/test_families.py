"""F64, F65: families four generations deep end from below, each parent once, while their workers are killed."""

from __future__ import annotations

import contextlib
import json
import signal
import time
from collections import Counter, defaultdict
from dataclasses import dataclass

import pytest

from stagepost.database import Store
from stagepost.model.batch import Counts
from stagepost.model.lifecycle import FINAL
from stagepost.store import counting
from tests.depth import sized
from tests.fault.arena import Arena
from tests.fault.families import DEPTH, WIDTH, fails, is_strict, joins
from tests.fault.nursery import WorkerProcess

WORKERS = 3
LIFE_SECONDS = (0.2, 0.8)
AT_ONCE = 24
KILLS = sized(4, 20, 1000)
COLUMNS = "id, batch_id, item_key, task_name, state, crashes, payload, result, finished_at"


@dataclass(frozen=True)
class Member:
    """A job of a family as it ended."""

    id: str
    parent: str | None
    key: str | None
    task: str
    state: str
    crashes: int
    name: str
    seed: int | None
    result: int | None
    finished_at: int


@pytest.mark.timeout(1800)
def test_families_end_from_below_while_workers_are_killed(arena: Arena) -> None:
    seeds: dict[str, int] = {}
    workers: dict[WorkerProcess, float] = {}
    killed = 0
    while killed < KILLS or arena.crashes() <= KILLS / 5:
        keep_busy(arena, seeds)
        while len(workers) < WORKERS:
            longer = max(1.0, killed / 5 - arena.crashes())  # while the kills hit too little
            workers[arena.start_worker()] = time.monotonic() + arena.random.uniform(*LIFE_SECONDS) * longer
        victim = min(workers, key=lambda worker: workers[worker])
        time.sleep(max(0.0, workers.pop(victim) - time.monotonic()))  # the moment is what is tried here
        victim.kill()
        assert victim.wait() == -signal.SIGKILL, victim.logged()
        killed += 1
    arena.wait(lambda: all_done(arena), "all families to end", seconds=120)

    found = members(arena)
    assert sum(one.crashes for one in found.values()) > KILLS / 5
    assert seeds.keys() == {one.id for one in found.values() if one.parent is None}
    children: dict[str | None, list[Member]] = defaultdict(list)
    for one in found.values():
        children[one.parent].append(one)
    with contextlib.closing(Store.at(arena.backend.url, pool_size=1)) as store:
        for one in found.values():
            check(arena, one, children[one.id], seeds, store.run(counting.count_items(one.id)))


def keep_busy(arena: Arena, seeds: dict[str, int]) -> None:
    while arena.backend.rows("select count(*) from stagepost_job")[0][0] < AT_ONCE:
        seed = arena.random.randrange(1_000_000)
        [job_id] = arena.enqueue("member", seed=seed, name="0")
        seeds[job_id] = seed


def all_done(arena: Arena) -> bool:
    [(live,)] = arena.backend.rows("select count(*) from stagepost_job")
    [(unfinished,)] = arena.backend.rows("select count(*) from stagepost_batch where state <> 'done'")
    return bool(live + unfinished == 0)


def members(arena: Arena) -> dict[str, Member]:
    found: dict[str, Member] = {}
    for row in arena.backend.rows(f"select {COLUMNS} from stagepost_job_history"):
        job_id, parent, key, task, state, crashes, payload, result, finished_at = row
        given = payload if isinstance(payload, dict) else json.loads(payload)
        value = result if isinstance(result, int) or result is None else json.loads(result)
        found[str(job_id)] = Member(
            str(job_id), parent and str(parent), key, task, state, crashes, given["name"], given.get("seed"), value,
            finished_at,
        )  # fmt: skip
    return found


def check(arena: Arena, parent: Member, children: list[Member], seeds: dict[str, int], counts: Counts) -> None:
    """Compare a job with what its children's ends make of it."""
    where = f"{parent}, children {children}, seed {arena.seed}"
    seed = seeds.get(parent.id, parent.seed)
    states = Counter(child.state for child in children)
    assert {str(state): getattr(counts, state) for state in FINAL if getattr(counts, state)} == dict(states), where
    assert counts.live == 0, where
    assert all(child.finished_at <= parent.finished_at for child in children), where
    if parent.state in {"dead_letter", "cancelled"}:
        return  # hit by three kills, or below one that was: it went with all its children
    assert seed is not None or parent.task == "join"
    if len(parent.name) > DEPTH:
        assert parent.state == ("failed" if fails(seed or 0, parent.name) else "completed"), where
        return
    assert sorted(child.name for child in children) == [f"{parent.name}{number}" for number in range(WIDTH)], where
    assert len({child.key for child in children}) == WIDTH, where
    if parent.task == "join":
        assert parent.state == "completed", where
        assert parent.result == 1 + sum(child.result or 0 for child in children), where
        return
    went_badly = states["failed"] + states["dead_letter"] + states["cancelled"]
    if is_strict(parent.name) and went_badly:
        assert parent.state == "failed", where
    else:
        assert not joins(seed or 0, parent.name), where
        expected = "completed_with_errors" if went_badly + states["completed_with_errors"] else "completed"
        assert (parent.state, parent.result) == (expected, 1), where
