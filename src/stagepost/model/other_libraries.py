"""Words of other task libraries, each with the line to write instead: for people who type them out of habit."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

__all__ = [
    "APP_WORDS",
    "CONTEXT_WORDS",
    "HANDLE_WORDS",
    "JOB_OPTION_WORDS",
    "REQUEST_WORDS",
    "TASK_OPTION_WORDS",
    "TASK_WORDS",
    "Words",
    "missing_attribute",
    "option_advice",
]

Words = Mapping[str, tuple[str, str]]
"""For each word, the library it is from and the line to write; `{}` stands for the name of the object."""

TASK_WORDS: Words = {
    "delay": ("Celery and RQ", "{}.enqueue(…)"),
    "delay_on_commit": ("Celery", "{}.using(connection).enqueue(…), inside the transaction"),
    "apply": ("Celery", "{}(…), which runs the function directly"),
    "apply_async": ("Celery", "{}.using(delay=…, queue=…).enqueue(…)"),
    "map": ("Celery", "{}.enqueue_many([(…,), (…,)])"),
    "starmap": ("Celery", "{}.enqueue_many([(…,), (…,)])"),
    "chunks": ("Celery", "{}.enqueue_many([(…,), (…,)])"),
    "s": ("Celery", "{}.job(…), or a pipeline"),
    "si": ("Celery", "{}.job(…), or a pipeline"),
    "subtask": ("Celery", "{}.job(…), or a pipeline"),
    "request": ("Celery", "job: JobContext as the handler's first parameter, then job.id and job.attempt"),
    "retry": ("Celery", "raise Retryable(…, after=seconds) in the handler"),
    "AsyncResult": ("Celery", "app.job(job_id)"),
    "send": ("Dramatiq", "{}.enqueue(…)"),
    "send_with_options": ("Dramatiq", "{}.using(delay=seconds).enqueue(…)"),
    "message": ("Dramatiq", "{}.job(…)"),
    "message_with_options": ("Dramatiq", "{}.using(…).job(…)"),
    "fn": ("Dramatiq", "{}.function"),
    "enqueue_in": ("RQ", "{}.using(delay=…).enqueue(…)"),
    "enqueue_at": ("RQ", "{}.using(at=…).enqueue(…)"),
    "defer": ("Procrastinate", "{}.enqueue(…)"),
    "defer_async": ("Procrastinate", "await {}.enqueue_async(…)"),
    "batch_defer": ("Procrastinate", "{}.enqueue_many([(…,), (…,)])"),
    "batch_defer_async": ("Procrastinate", "await {}.enqueue_many_async([(…,), (…,)])"),
    "configure": ("Procrastinate", "{}.using(…).enqueue(…)"),
    "aenqueue": ("django.tasks", "await {}.enqueue_async(…)"),
    "schedule": ("Huey", "{}.using(delay=…).enqueue(…)"),
}
"""Attributes of tasks."""

REQUEST_WORDS: Words = {name: TASK_WORDS[name] for name in ("delay", "send", "defer", "defer_async", "aenqueue")}
"""Attributes of `task.using(…)`."""

APP_WORDS: Words = {
    "send_task": ("Celery", "task.enqueue(…), with the task imported"),
    "conf": ("Celery", "App(settings=Settings(…)), or put the settings into stagepost.toml"),
    "config_from_object": ("Celery", "App(settings=Settings(…)), or put the settings into stagepost.toml"),
    "autodiscover_tasks": ("Celery", "import tasks, in the module of the app, for each module with tasks"),
    "AsyncResult": ("Celery", "app.job(job_id)"),
    "control": ("Celery", "app.job(job_id).cancel(), or the commands `stagepost jobs` and `stagepost workers`"),
    "Worker": ("Celery", "Worker(app), with Worker imported from stagepost"),
    "worker_main": ("Celery", "asyncio.run(Worker(app).run()), or the command `stagepost worker`"),
    "add_periodic_task": ("Celery", 'app.schedule("name", "every 15m", task.job(…))'),
    "actor": ("Dramatiq", "@app.task"),
    "enqueue": ("RQ", "task.enqueue(…), with the task from @app.task"),
    "enqueue_call": ("RQ", "task.using(…).enqueue(…), with the task from @app.task"),
    "enqueue_in": ("RQ", "task.using(delay=…).enqueue(…)"),
    "enqueue_at": ("RQ", "task.using(at=…).enqueue(…)"),
    "fetch_job": ("RQ", "app.job(job_id)"),
    "periodic": ("Procrastinate", 'app.schedule("name", "0 3 * * *", task.job(…))'),
    "configure_task": ("Procrastinate", "task.using(…).enqueue(…), with the task imported"),
    "run_worker": ("Procrastinate", "asyncio.run(Worker(app).run()), or the command `stagepost worker`"),
    "run_worker_async": ("Procrastinate", "await Worker(app).run(), or the command `stagepost worker`"),
    "open": ("Procrastinate", "nothing: the app connects when it is first used"),
    "open_async": ("Procrastinate", "nothing: the app connects when it is first used"),
}
"""Attributes of apps."""

CONTEXT_WORDS: Words = {
    "request": ("Celery", "job.id, job.attempt, job.failures"),
    "retry": ("Celery", "raise Retryable(…, after=seconds)"),
    "update_state": ("Celery", "job.report(…)"),
    "meta": ("RQ", "job.report(…)"),
    "save_meta": ("RQ", "job.report(…)"),
    "should_abort": ("Procrastinate", "job.is_cancelled"),
}
"""Attributes of what a handler gets."""

HANDLE_WORDS: Words = {
    "get": ("Celery", "job.result(timeout=…)"),
    "ready": ("Celery", "job.state() in {JobState.COMPLETED, …}, or job.wait(timeout=…)"),
    "successful": ("Celery", "job.state() is JobState.COMPLETED"),
    "failed": ("Celery", "job.state() in {JobState.FAILED, JobState.DEAD_LETTER}"),
    "status": ("Celery", "job.state()"),
    "task_id": ("Celery", "job.id"),
    "revoke": ("Celery", "job.cancel()"),
    "forget": ("Celery", "nothing: the setting history_days says how long results are kept"),
    "get_result": ("Dramatiq", "job.result(timeout=…)"),
    "message_id": ("Dramatiq", "job.id"),
    "return_value": ("RQ", "job.result(timeout=…)"),
    "get_status": ("RQ", "job.state()"),
    "get_id": ("RQ", "job.id"),
    "is_finished": ("RQ", "job.state() is JobState.COMPLETED"),
    "refresh": ("RQ and django.tasks", "nothing: job.state() always asks the database"),
}
"""Attributes of handles to jobs."""

RETRY_ON = "retry=RetryPolicy(retry_on=(SomeError,), max_attempts=…)"
LONGEST_DELAY = "retry=RetryPolicy(longest_delay=seconds)"
HISTORY_DAYS = "nothing here: the setting history_days says how long ended jobs and their results are kept"
ACKNOWLEDGED = "nothing: a job is given up only when its end is stored, and a worker that dies loses none"
ONE_AT_A_TIME = "max_running=1, limit_by=lambda customer: str(customer), with the task's own parameters"

TASK_OPTION_WORDS: Words = {
    "bind": ("Celery", "def handler(job: JobContext, …), without this option"),
    "autoretry_for": ("Celery", RETRY_ON),
    "dont_autoretry_for": ("Celery", "retry=RetryPolicy(permanent_on=(SomeError,))"),
    "max_retries": ("Celery and Dramatiq", "retry=RetryPolicy(max_attempts=…), which counts the first attempt as well"),
    "default_retry_delay": ("Celery", "retry=RetryPolicy(first_delay=seconds, factor=1)"),
    "retry_backoff": ("Celery", "retry=RetryPolicy(first_delay=seconds)"),
    "retry_backoff_max": ("Celery", LONGEST_DELAY),
    "retry_jitter": ("Celery", "retry=RetryPolicy(jitter=1.0)"),
    "retry_kwargs": ("Celery", "retry=RetryPolicy(max_attempts=…)"),
    "throws": ("Dramatiq", "retry=RetryPolicy(permanent_on=(SomeError,))"),
    "acks_late": ("Celery", ACKNOWLEDGED),
    "reject_on_worker_lost": ("Celery", ACKNOWLEDGED),
    "ignore_result": ("Celery", "-> None for the handler"),
    "store_results": ("Dramatiq", "nothing: what the handler returns is stored"),
    "time_limit": ("Celery and Dramatiq", "timeout=seconds"),
    "soft_time_limit": ("Celery", "timeout=seconds"),
    "queue_name": ("Dramatiq", "queue=…"),
    "actor_name": ("Dramatiq", "name=…"),
    "min_backoff": ("Dramatiq", "retry=RetryPolicy(first_delay=seconds)"),
    "max_backoff": ("Dramatiq", LONGEST_DELAY),
    "retry_when": ("Dramatiq", "retry=RetryPolicy(retry_on=(SomeError,), unknown_errors='permanent')"),
    "job_timeout": ("RQ", "timeout=seconds"),
    "result_ttl": ("RQ", HISTORY_DAYS),
    "failure_ttl": ("RQ", HISTORY_DAYS),
    "pass_context": ("Procrastinate", "def handler(job: JobContext, …), without this option"),
    "lock": ("Procrastinate", ONE_AT_A_TIME),
    "queueing_lock": ("Procrastinate", "task.using(unique_key=…).enqueue(…)"),
}
"""Options of `@app.task`."""

JOB_OPTION_WORDS: Words = {
    "countdown": ("Celery", "delay=seconds"),
    "eta": ("Celery", "at=…"),
    "expires": ("Celery", "a check of the age in the handler: jobs do not expire"),
    "task_id": ("Celery", "id=…"),
    "routing_key": ("Celery", "queue=…"),
    "link": ("Celery", "a pipeline, or task.enqueue(…) at the end of the handler"),
    "link_error": ("Celery", "a pipeline with on_complete, or @app.on_alert"),
    "max_retries": ("Celery and Dramatiq", "max_attempts=…, which counts the first attempt as well"),
    "queue_name": ("Dramatiq", "queue=…"),
    "job_id": ("RQ", "id=…, a UUID, or unique_key=…"),
    "job_timeout": ("RQ", "@app.task(timeout=seconds)"),
    "result_ttl": ("RQ", HISTORY_DAYS),
    "failure_ttl": ("RQ", HISTORY_DAYS),
    "at_front": ("RQ", "priority=1"),
    "depends_on": ("RQ", "a pipeline, or job.submit(…) in the handler of a parent"),
    "schedule_in": ("Procrastinate", "delay=…"),
    "schedule_at": ("Procrastinate", "at=…"),
    "queueing_lock": ("Procrastinate", "unique_key=…"),
    "lock": ("Procrastinate", f"@app.task({ONE_AT_A_TIME})"),
    "run_after": ("django.tasks", "at=…"),
}
"""Options of `task.using`."""


def missing_attribute(owner: object, name: str, words: Words, *, written: str = "task") -> Any:
    """Raise the error for an attribute that an object lacks, for its `__getattr__`."""
    if hasattr(type(owner), name):
        return object.__getattribute__(owner, name)  # a property raised AttributeError: raise that one again
    if name not in words:
        raise AttributeError(f"{type(owner).__name__!r} object has no attribute {name!r}")
    raise AttributeError(_advice(name, words, written))


def option_advice(names: Iterable[str], words: Words) -> str:
    """Say what to write instead of options that other libraries have; empty if there are none of them."""
    return "".join(f" {_advice(name, words, 'task')}." for name in names if name in words)


def _advice(name: str, words: Words, written: str) -> str:
    library, line = words[name]
    return f"{name} is a word of {library}. Write: {line.replace('{}', written)}"
