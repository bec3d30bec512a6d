"""The backend of Django's tasks keeps to what Django's own tests demand of backends.

Of the checks in Django's tests/tasks and in those of django-tasks, these do not apply here:

- the dummy backend's `results` and `clear()`, and the immediate backend's end of a task before `enqueue` returns: they
  are features of those backends
- "does not support run_after", "priority", "async tasks" and "retrieving results": this backend supports them all
- `ENQUEUE_ON_COMMIT`: Django 6 and django-tasks 0.9 have dropped it; a job is always part of the caller's transaction
- a KeyboardInterrupt that ends the program: a worker's handlers run in threads, which receive no signals
- numbers of queries, the models, admin pages and commands of django-tasks's database backend
- parts of Django that no backend takes part in: pickled tasks, the order and hash of results, `TaskError` with a class
  that cannot be imported, `run_after` in the decorator
"""

from __future__ import annotations

import dataclasses
import uuid
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.conf import settings
from django.db import transaction
from django.test import TransactionTestCase, override_settings, tag
from django.utils import timezone

from stagepost.contrib.django import app
from stagepost.contrib.django.backend import StagepostBackend
from stagepost.errors import ConfigurationError
from tests.acceptance.django.helpers import work
from tests.acceptance.django.shop import django_tasks as tasks
from tests.acceptance.django.shop.tasks import receipt

try:
    import django.tasks as api
    from django.tasks.exceptions import InvalidTask, TaskResultDoesNotExist, TaskResultMismatch
    from django.tasks.signals import task_enqueued, task_finished, task_started
except ImportError:
    import django_tasks as api
    from django_tasks.exceptions import InvalidTaskError as InvalidTask
    from django_tasks.exceptions import TaskResultDoesNotExist, TaskResultMismatch
    from django_tasks.signals import task_enqueued, task_finished, task_started

Status = api.TaskResultStatus
backend = api.default_task_backend
TASKS = settings.TASKS


class EnqueueChecks(TransactionTestCase):
    """What `enqueue` returns, and what can be read of it."""

    def test_the_backend_is_ours(self) -> None:
        assert type(api.task_backends["default"]) is StagepostBackend
        assert (backend.alias, backend.options) == ("default", {})
        assert list(backend.check()) == []
        for feature in ("defer", "async_task", "get_result", "priority"):
            assert getattr(backend, f"supports_{feature}"), feature

    def test_a_new_result_is_ready(self) -> None:
        for task in (tasks.add, tasks.add_async):
            with self.subTest(task=task.name):
                result = task.enqueue(1, right=3)

                self._check_new(result, task)
                assert (result.args, result.kwargs) == ([1], {"right": 3})

    async def test_a_new_result_is_ready_in_async_code(self) -> None:
        for task in (tasks.add, tasks.add_async):
            with self.subTest(task=task.name):
                result = await task.aenqueue(1)

                self._check_new(result, task)
                assert (result.args, result.kwargs) == ([1], {})

    def _check_new(self, result: Any, task: Any) -> None:
        assert (result.status, result.is_finished, result.attempts) == (Status.READY, False, 0)
        assert (result.started_at, result.last_attempted_at, result.finished_at) == (None, None, None)
        assert (result.errors, result.worker_ids, result.backend) == ([], [], "default")
        assert result.task == task
        assert abs(timezone.now() - result.enqueued_at) <= timedelta(minutes=1)
        with self.assertRaisesMessage(ValueError, "Task has not finished yet"):
            _ = result.return_value

    def test_a_result_can_be_read_by_its_id(self) -> None:
        later = timezone.now() + timedelta(hours=1)
        for task in (tasks.add, tasks.in_mail, tasks.add.using(priority=-100, queue_name="mail", run_after=later)):
            result = backend.enqueue(task, [1] if task.func is tasks.add.func else [], {})

            assert backend.get_result(result.id) == result
            assert task.get_result(result.id) == result

    async def test_a_result_can_be_read_by_its_id_in_async_code(self) -> None:
        result = await backend.aenqueue(tasks.add, (1,), {})

        assert await backend.aget_result(result.id) == result
        assert await tasks.add.aget_result(result.id) == result

    async def test_a_refresh_without_news_changes_nothing(self) -> None:
        result = await tasks.add.aenqueue(1)
        before = dataclasses.asdict(result)

        await result.arefresh()

        assert dataclasses.asdict(result) == before

    def test_a_missing_result_raises(self) -> None:
        ours = receipt.enqueue(1)
        for unknown in ("123", str(uuid.uuid4()), "", "x" * 5000, ours.id):
            with self.subTest(unknown[:40]), pytest.raises(TaskResultDoesNotExist):
                backend.get_result(unknown)
            with self.subTest(unknown[:40]), pytest.raises(TaskResultDoesNotExist):
                tasks.add.get_result(unknown)

    async def test_a_missing_result_raises_in_async_code(self) -> None:
        for unknown in ("123", str(uuid.uuid4())):
            with pytest.raises(TaskResultDoesNotExist):
                await backend.aget_result(unknown)

    async def test_a_result_of_another_task_raises(self) -> None:
        result = await tasks.add.aenqueue(1)

        with pytest.raises(TaskResultMismatch):
            await tasks.add_async.aget_result(result.id)

    def test_arguments_must_be_json(self) -> None:
        for argument in (datetime.now(UTC), object(), {1}):
            with self.assertRaisesMessage(TypeError, "Unsupported type"):
                tasks.echo.enqueue(argument)

    async def test_arguments_must_be_json_in_async_code(self) -> None:
        with self.assertRaisesMessage(TypeError, "Unsupported type"):
            await tasks.echo.aenqueue(datetime.now(UTC))

    def test_tasks_are_validated(self) -> None:
        with self.assertRaisesMessage(InvalidTask, "Queue 'unknown' is not valid for backend."):
            tasks.add.using(queue_name="unknown")
        for priority in (-101, 101, 3.1):
            with self.assertRaisesMessage(InvalidTask, "priority must be a whole number between -100 and 100."):
                tasks.add.using(priority=priority)
        with self.assertRaisesMessage(InvalidTask, "run_after must be an aware datetime."):
            tasks.add.using(run_after=datetime.now())  # noqa: DTZ005 - a naive one
        for wrong in (any, lambda: None):
            with self.assertRaisesMessage(InvalidTask, "Task function must be defined at a module level."):
                api.task()(wrong)
        with self.assertRaisesMessage(InvalidTask, "does not have a first argument of 'context'"):
            api.task(takes_context=True)(tasks.add.func)

    def test_a_task_is_validated_again_when_it_is_enqueued(self) -> None:
        fewer = override_settings(TASKS={"default": {**TASKS["default"], "QUEUES": ["mail"]}})
        with fewer, self.assertRaisesMessage(InvalidTask, "Queue 'default' is not valid for backend"):
            tasks.add.enqueue(1)

    async def test_a_task_is_validated_again_when_it_is_enqueued_in_async_code(self) -> None:
        fewer = override_settings(TASKS={"default": {**TASKS["default"], "QUEUES": ["mail"]}})
        with fewer, self.assertRaisesMessage(InvalidTask, "Queue 'default' is not valid for backend"):
            await tasks.add.aenqueue(1)

    def test_any_queue_can_be_allowed(self) -> None:
        result = tasks.add.using(queue_name="new", backend="any_queue").enqueue(1)

        assert api.task_backends["any_queue"].get_result(result.id) == result
        assert app.client.job(result.id).queue == "new"

    def test_unknown_options_are_refused(self) -> None:
        wrong = {"default": {**TASKS["default"], "OPTIONS": {"retries": 3}}}
        with override_settings(TASKS=wrong), self.assertRaisesMessage(ConfigurationError, "option 'retries'"):
            tasks.add.enqueue(1)

    @override_settings(INSTALLED_APPS=[])
    def test_an_app_that_is_not_installed_is_reported(self) -> None:
        [error] = backend.check()

        assert "stagepost.contrib.django" in error.hint

    def test_a_task_is_part_of_the_transaction(self) -> None:
        with transaction.atomic():
            undone = tasks.add.enqueue(1)
            assert backend.get_result(undone.id) == undone
            transaction.set_rollback(True)
        with transaction.atomic():
            stored = tasks.add.enqueue(1)

        with pytest.raises(TaskResultDoesNotExist):
            undone.refresh()
        assert backend.get_result(stored.id) == stored

    def test_an_enqueue_is_logged(self) -> None:
        with self.assertLogs(api.__name__, level="DEBUG") as logs:
            result = tasks.add.enqueue(1)

        [line] = logs.output
        assert "enqueued" in line
        assert result.id in line

    def test_an_error_of_a_receiver_does_not_hide_that_the_task_is_stored(self) -> None:
        def refuse(**_: Any) -> None:
            raise ValueError("no")

        task_enqueued.connect(refuse)
        self.addCleanup(task_enqueued.disconnect, refuse)
        with self.assertLogs("django.dispatch", level="ERROR"):
            result = tasks.add.enqueue(1)

        assert backend.get_result(result.id) == result

    @override_settings(USE_TZ=False, TIME_ZONE="Europe/Berlin")
    def test_a_project_without_time_zones_gets_naive_times(self) -> None:
        later = datetime.now().replace(microsecond=0) + timedelta(hours=1)  # noqa: DTZ005 - as such projects do
        result = tasks.add.using(run_after=later).enqueue(1)

        assert result.enqueued_at.tzinfo is None
        assert backend.get_result(result.id) == result
        assert result.task.run_after == later


@tag("worker")
class RunChecks(TransactionTestCase):
    """What a worker makes of tasks."""

    def test_successful_tasks(self) -> None:
        pairs = [
            (tasks.add.enqueue(1, right=41), 42),
            (tasks.add_async.enqueue(1, right=41), 42),
            (tasks.note.enqueue("x"), None),
            (tasks.echo.enqueue((1, 2), b"b", key={"a": None}), [[[1, 2], "b"], {"key": {"a": None}}]),
            (tasks.in_mail.enqueue(), None),
        ]

        work()

        for result, value in pairs:
            with self.subTest(task=result.task.name):
                assert result.status == Status.READY
                result.refresh()
                assert (result.status, result.is_finished, result.attempts) == (Status.SUCCESSFUL, True, 1)
                assert result.return_value == value
                self._check_times(result)

    def test_failed_tasks(self) -> None:
        cases = [
            (tasks.fail.enqueue("out: of stock\nand more"), tasks.ShopError, "ShopError: out: of stock\nand more\n"),
            (tasks.fail_with_cause.enqueue(), ValueError, "ValueError: inner\n"),
            (tasks.fail_async.enqueue(), KeyError, "KeyError: 'missing'\n"),
            (tasks.leave.enqueue(), SystemExit, "SystemExit: left\n"),
            (tasks.return_object.enqueue(), TypeError, "Unsupported type: <class 'object'>\n"),
        ]

        with self.assertLogs(api.__name__, level="ERROR") as logs:
            work()

        assert len(logs.records) == len(cases)
        assert all(record.exc_info and record.exc_info[0] for record in logs.records)
        for result, kind, end in cases:
            with self.subTest(task=result.task.name):
                result.refresh()
                assert (result.status, result.is_finished, result.attempts) == (Status.FAILED, True, 1)
                [error] = result.errors
                assert error.exception_class is kind
                assert error.traceback.endswith(end), error.traceback
                with self.assertRaisesMessage(ValueError, "Task failed"):
                    _ = result.return_value
                self._check_times(result)

    def _check_times(self, result: Any) -> None:
        assert result.enqueued_at <= result.started_at
        assert result.started_at <= result.finished_at
        assert result.last_attempted_at == result.started_at
        assert result.task.get_backend().get_result(result.id) == result

    async def test_a_result_can_be_refreshed_in_async_code(self) -> None:
        result = await tasks.add.aenqueue(1)
        await sync_to_async(work, thread_sensitive=False)()

        await result.arefresh()

        assert (result.status, result.return_value) == (Status.SUCCESSFUL, 1)

    def test_a_task_can_take_its_context(self) -> None:
        tasks.context_seen.clear()
        result = tasks.attempt_of.using(priority=3).enqueue(1)

        work()

        result.refresh()
        assert result.return_value == result.id
        [context] = tasks.context_seen
        seen = context.task_result
        assert (seen.task, seen.args, seen.enqueued_at) == (result.task, [1], result.enqueued_at)
        assert seen.worker_ids == result.worker_ids

    def test_a_retried_task_shows_its_errors_and_workers(self) -> None:
        result = tasks.fail_first.enqueue()

        work()

        result.refresh()
        assert (result.status, result.return_value, result.attempts) == (Status.SUCCESSFUL, 2, 2)
        [error] = result.errors
        assert error.exception_class is ConnectionError
        assert (result.backend, backend.get_result(result.id).backend) == ("retrying", "retrying")

    def test_tasks_run_by_priority(self) -> None:
        tasks.ran.clear()
        for priority in (-100, 0, 100, 5):
            tasks.note.using(priority=priority).enqueue(str(priority))

        work(concurrency=1)

        assert tasks.ran == ["100", "5", "0", "-100"]

    def test_a_deferred_task_waits(self) -> None:
        due = tasks.add.using(run_after=timezone.now() - timedelta(hours=1)).enqueue(1)
        waits = tasks.add.using(run_after=timezone.now() + timedelta(hours=1)).enqueue(1)

        work()

        for result, status in ((due, Status.SUCCESSFUL), (waits, Status.READY)):
            result.refresh()
            assert result.status == status

    def test_a_worker_for_one_queue_leaves_the_others(self) -> None:
        mail, other = tasks.in_mail.enqueue(), tasks.add.enqueue(1)

        work(queues=["mail"])

        mail.refresh()
        other.refresh()
        assert (mail.status, other.status) == (Status.SUCCESSFUL, Status.READY)

    def test_signals_follow_a_task(self) -> None:
        seen: list[tuple[str, str]] = []
        for name, signal in (("enqueued", task_enqueued), ("started", task_started), ("finished", task_finished)):

            def receive(task_result: Any, name: str = name, **_: Any) -> None:
                seen.append((name, str(task_result.status)))

            signal.connect(receive, weak=False, sender=StagepostBackend, dispatch_uid="check")
            self.addCleanup(signal.disconnect, dispatch_uid="check", sender=StagepostBackend)
        tasks.add.enqueue(1)
        work()
        tasks.fail.enqueue("x")
        with self.assertLogs(api.__name__, level="ERROR"):
            work()

        begin = [("enqueued", "READY"), ("started", "RUNNING")]
        assert seen == [*begin, ("finished", "SUCCESSFUL"), *begin, ("finished", "FAILED")]
