"""The tables: guards that keep late and repeated writes out, on each database."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from importlib import resources
from pathlib import Path
from uuid import UUID

import msgspec
import pytest

from stagepost_dubbing import Dubbing, Segment
from stagepost_dubbing.tables import connection, segments, steps, tasks
from stagepost_dubbing.tables.steps import StepRow
from tests.apps.dubbing.conftest import MakeDubbing

HEARD = [Segment(idx, f"seg-{idx}", 1000 * idx, 1000 * idx + 900, f"text {idx}") for idx in range(3)]
ATTEMPT = StepRow("asr", "", 1, "running", "trace", "job", 0, 0, None, None)


@pytest.fixture
def task_id(dubbing: Dubbing, small_video: Path) -> str:
    task_id = dubbing.submit(small_video, to="pt").id
    with dubbing.services.database.transaction() as tx:
        segments.replace_all(tx, task_id, HEARD)
    return task_id


def test_a_translation_is_stored_once(dubbing: Dubbing, task_id: str) -> None:
    with dubbing.services.database.transaction() as tx:
        segments.save_text(tx, task_id, 1, "first")
        segments.save_text(tx, task_id, 1, "second")
        left = segments.untranslated(tx, task_id, among=["seg-1", "seg-2"])

    assert [segment.mt_text for segment in dubbing.segments(task_id)] == [None, "first", None]
    assert [segment.idx for segment in left] == [2]


def test_speech_of_a_text_that_was_changed_is_not_stored(dubbing: Dubbing, task_id: str) -> None:
    with dubbing.services.database.transaction() as tx:
        segments.save_text(tx, task_id, 0, "old")
        [old, *_] = segments.list_all(tx, task_id)
        segments.change_text(tx, task_id, 0, "new")
        segments.save_speech(tx, task_id, old, key="late", parameters="{}")
        [new, *_] = segments.list_all(tx, task_id)
        segments.save_speech(tx, task_id, new, key="first", parameters="{}")
        segments.save_speech(tx, task_id, new, key="second", parameters="{}")

    assert (dubbing.segments(task_id)[0].mt_text, dubbing.segments(task_id)[0].tts_audio_key) == ("new", "first")


def test_an_attempt_that_was_taken_over_cannot_end(dubbing: Dubbing, task_id: str) -> None:
    with dubbing.services.database.transaction() as tx:
        steps.begin(tx, task_id, ATTEMPT)
        assert steps.end(tx, task_id, ATTEMPT, "failed", error="taken over")
        assert not steps.end(tx, task_id, ATTEMPT, "succeeded")

    assert [row.status for row in dubbing.attempts(task_id)] == ["failed"]


def test_an_attempt_has_a_number_of_its_own(dubbing: Dubbing, task_id: str) -> None:
    def begin() -> None:
        with dubbing.services.database.transaction() as tx:
            steps.begin(tx, task_id, ATTEMPT)

    begin()
    with pytest.raises(Exception, match=r"(?i)unique|duplicate"):
        begin()
    assert len(dubbing.attempts(task_id)) == 1


def test_a_failed_task_keeps_its_error_and_another_loses_it(dubbing: Dubbing, task_id: str) -> None:
    with dubbing.services.database.transaction() as tx:
        tasks.note_error(tx, task_id, "asr: broken")
        tasks.set_status(tx, task_id, "failed")
    failed = dubbing.task(task_id)
    assert (failed.status, failed.error, failed.finished_at is None) == ("failed", "asr: broken", False)

    with dubbing.services.database.transaction() as tx:
        tasks.set_status(tx, task_id, "queued")
    queued = dubbing.task(task_id)
    assert (queued.status, queued.error, queued.finished_at) == ("queued", None, None)
    assert 0 < queued.created_at <= queued.updated_at < queued.created_at + 600_000_000


def test_texts_of_all_languages_are_kept(dubbing: Dubbing, task_id: str) -> None:
    text = "naïve 你好 😀 'quoted' %s ? :name \\ \n"
    with dubbing.services.database.transaction() as tx:
        segments.save_text(tx, task_id, 0, text)

    assert dubbing.segments(task_id)[0].mt_text == text


def test_an_error_of_any_length_is_kept_in_part(dubbing: Dubbing, task_id: str) -> None:
    error = "\0😀" + "x" * 200_000
    with dubbing.services.database.transaction() as tx:
        tasks.note_error(tx, task_id, error)
        segments.save_trouble(tx, task_id, 0, error)
        steps.begin(tx, task_id, ATTEMPT)
        steps.end(tx, task_id, ATTEMPT, "failed", error=error)

    kept = (dubbing.task(task_id).error, dubbing.segments(task_id)[0].tts_error, dubbing.attempts(task_id)[0].error)
    assert {text[:5] for text in kept if text is not None} == {" 😀xxx"}


SORTS = {"sqlite3": "TEMP B-TREE", "psycopg": "Sort", "pymysql": "filesort"}
"""What databases say when they sort what no index brings in order."""


def test_the_newest_tasks_are_found_without_sorting_all(dubbing: Dubbing, task_id: str) -> None:
    task = dubbing.task(task_id)
    with dubbing.services.database.transaction() as tx:
        for number in range(500):
            status = "failed" if number % 50 == 0 else "done"
            tasks.add(tx, msgspec.structs.replace(task, id=str(UUID(int=number)), status=status, run_id=None))

    with dubbing.services.database.transaction() as tx:
        tx.run_text("analyze table tasks" if tx.driver == "pymysql" else "analyze")
    for name, index, search in (
        ("list_tasks", "tasks_newest", "USING INDEX"),
        ("list_tasks_by_status", "tasks_newest_by_status", "(status=?)"),
    ):
        with dubbing.services.database.reading() as tx:
            plan = plan_of(tx, name, {"status": "failed", "most": 5})
            assert SORTS[tx.driver] not in plan, plan
            assert (search if tx.driver == "sqlite3" else index) in plan, plan
    newest = dubbing.tasks(status="failed", most=5)
    assert [one.status for one in newest] == ["failed"] * 5
    assert [one.created_at for one in newest] == sorted((one.created_at for one in newest), reverse=True)


def plan_of(tx: connection.Connection, name: str, values: dict[str, object]) -> str:
    """How the database would run a statement."""
    sql, parameters = connection._prepared(name, tx.driver)
    cursor = tx.raw.cursor()
    prefix = "explain query plan" if tx.driver == "sqlite3" else "explain"
    cursor.execute(f"{prefix} {sql}", tuple(values[parameter] for parameter in parameters))
    return "\n".join(" ".join(str(value) for value in row) for row in cursor.fetchall())


def test_tables_can_be_made_by_many_at_once(make_dubbing: MakeDubbing, database_url: str) -> None:
    made = [make_dubbing(DUBBING_DATABASE_URL=database_url) for _ in range(3)]

    with ThreadPoolExecutor(3) as pool:
        list(pool.map(lambda dubbing: dubbing.migrate(), made))

    assert made[0].tasks() == []


def test_every_statement_is_one_that_code_names() -> None:
    files = {
        file.name.removesuffix(".sql") for file in resources.files("stagepost_dubbing.tables").joinpath("sql").iterdir()
    }
    package = Path(connection.__file__).parents[1]
    code = "".join(file.read_text() for file in package.rglob("*.py"))

    assert {name for name in files if f'"{name}"' not in code} == set()
