"""Plans that PostgreSQL keeps are good for tables of any size, though it may have made them while all was empty."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

import pytest

from stagepost.database.dialect import POSTGRES, CompiledText, ParameterStyle, optional_names
from stagepost.database.libpq import PREPARE_FROM, keeps_plan
from stagepost.model.outcome import Completed
from stagepost.store import jobs
from stagepost.store.settlement import Settlement
from stagepost.store.settling import settle
from tests.conformance.bench import Bench, Colour, DatabaseOnBench
from tests.conformance.plans import analyze, left_alone
from tests.conformance.ran import all_statements
from tests.conformance.samples import claim, new_job

WALKS = {"find_batch_drift", "find_live_drift", "group_dead_letters", "list_few_live_jobs", "lock_owned_jobs"}
"""Rare ones, which count or look at many jobs by their nature, or are not used without one of their clauses."""
FEW = "stagepost_job_(due|lease|limit|sent)"
"""Indexes of few jobs, such as those that run: it does no harm to go through all of one."""


def kept_texts() -> list[tuple[str, CompiledText]]:
    """Every statement whose plan is kept, without its optional clauses and with all of them."""
    texts: dict[str, tuple[str, CompiledText]] = {}
    for name in sorted({name for _, name, _ in all_statements(POSTGRES)} - WALKS - {"load_jobs"}):
        for given in (frozenset[str](), optional_names(POSTGRES.name, name)):
            script = POSTGRES.script(name, ParameterStyle.DOLLAR, own_clock=True, given=given)
            texts |= {text.sql: (name, text) for text in script.texts if keeps_plan(text.sql)}
    return list(texts.values())


KEPT = kept_texts()


@pytest.fixture(scope="module")
def empty_store(database_on_bench: Callable[[str], DatabaseOnBench]) -> Iterator[Bench]:
    """Tables that hold nothing, and PostgreSQL knows it: as on a quiet evening."""
    database = database_on_bench("postgres")
    database.empty()
    store = Bench(database, Colour.SYNC)
    with left_alone(store):
        analyze(store)
        yield store


@pytest.mark.parametrize("text", [text for _, text in KEPT], ids=[name for name, _ in KEPT])
def test_a_plan_made_while_the_tables_are_empty_reads_none_of_them_whole(
    empty_store: Bench, text: CompiledText
) -> None:
    with empty_store.transaction() as connection:
        connection.execute("set local plan_cache_mode = force_generic_plan", ())
        connection.execute(f"prepare kept as {text.sql}", ())
        values = f"({', '.join(['null'] * len(text.names))})" if text.names else ""
        plan = [line for (line,) in connection.execute(f"explain execute kept{values}", ())]
        connection.execute("deallocate kept", ())

    assert not walks(plan), "\n".join(plan)


def walks(plan: list[str]) -> list[str]:
    """Where the jobs or moves would be read without a condition that an index or a place answers."""
    return [
        line
        for line, below in zip(plan, [*plan[1:], ""], strict=True)
        if re.search(r"Scan\b.* on stagepost_(job|move)", line)
        and not re.search(rf"Scan using {FEW} ", line)
        and not re.search(r"(Index|TID|Recheck) Cond:", below)
    ]


def test_jit_compilation_is_off(empty_store: Bench) -> None:
    assert empty_store.rows("select current_setting('jit')") == [("off",)]


def test_what_every_job_needs_is_among_them() -> None:
    assert {"claim_jobs", "end_jobs", "insert_job", "live_job"} <= {name for name, _ in KEPT}


@pytest.mark.parametrize("database", ["postgres"], indirect=True)
@pytest.mark.parametrize("together", [2, 1])
def test_a_list_is_planned_each_time_but_for_a_list_of_one(blocking_store: Bench, together: int) -> None:
    store = blocking_store
    store.run(jobs.enqueue_many([new_job() for _ in range(PREPARE_FROM * together)]))
    held = claim(store, slots=PREPARE_FROM * together)
    store.database.store.pool.close_idle()  # a session that has prepared nothing yet

    for start in range(0, len(held), together):
        changes = [Settlement.of(job, Completed()) for job in held[start : start + together]]
        assert all(store.run(settle(changes)).values())

    rows = store.rows("select count(*) from pg_prepared_statements where statement like 'with ended as%'")
    assert rows == [(1 if together == 1 else 0,)]
