"""Options of the wrong type or value are refused at the call, with an error that names the option and the value."""

from __future__ import annotations

import contextlib
import datetime as dt
import logging
import re
from collections.abc import Callable
from contextlib import closing
from typing import Any, get_type_hints
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stagepost import (
    App,
    JobOptions,
    PayloadLimits,
    RateLimit,
    Retryable,
    RetryPolicy,
    Settings,
    Snooze,
    StagepostError,
    TraceContext,
    Worker,
    configure_logging,
    traced,
)
from stagepost.config.rabbitmq import BrokerQueueSettings, RabbitmqSettings
from stagepost.errors import ConfigurationError, PayloadError, PipelineError
from stagepost.model.options import JobKeywords, TaskKeywords, TaskOptions
from stagepost.model.payload import JOB_OPTIONS
from stagepost.testing import ManualClock, manual
from stagepost.transport.rabbitmq.address import parameters_of
from tests.depth import sized


class Unprintable:
    """An object that belongs into no option, and whose text cannot even be made."""

    def __repr__(self) -> str:
        raise RuntimeError("no text")


NOTHING_FITS: list[Any] = [object(), b"bytes", [1], {"a": 1}, {1}, 1j, Unprintable(), int, Exception()]
"""Values that no option takes."""
ANYTHING = st.one_of(
    st.sampled_from(NOTHING_FITS),
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(max_size=300),
    st.timedeltas(),
    st.datetimes(),
    st.tuples(st.text(max_size=3)),
)


def app() -> App:
    return App("sqlite://")


def greet(name: str) -> str:
    return name


def make_task(**options: Any) -> object:
    with closing(app()) as own:
        return own.task(**{"name": "greet", **options})(greet)


def make_request(**options: Any) -> object:
    with closing(app()) as own:
        return own.task(name="greet")(greet).using(**options).job("Ada")


def make_rate_limit(**options: Any) -> object:
    return RateLimit(**{"name": "model", "per_second": 1, **options})


def make_worker(**options: Any) -> object:
    with closing(app()) as own:
        own.task(name="greet")(greet)
        return Worker(own, **options)


def configure_quietly(**options: Any) -> None:
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    try:
        configure_logging(**options)
    finally:
        root.handlers[:] = handlers
        root.setLevel(level)


def with_app(call: Callable[..., object]) -> Callable[..., object]:
    """Call with an app that has a task, a batch with one item, and a job."""

    def made(**options: Any) -> object:
        with closing(app()) as own:
            task = own.task(name="greet")(greet)
            own.batch("letters").add([task.item("one", "Ada")])
            return call(own, **options)

    return made


def make_app(**options: Any) -> None:
    with closing(App(**{"database_url": "sqlite://", **options})):
        pass


def make_schedule(own: App, **options: Any) -> None:
    job = own.registry.get("greet").job("Ada")
    own.schedule(**{"name": "often", "rule": "every 2s", "job": job, **options})


def make_step(own: App, **options: Any) -> object:
    return own.pipeline("letters").step(own.registry.get("greet"), **{"inputs": {"name": "Ada"}, **options})


def start_run(own: App, **options: Any) -> object:
    pipeline = own.pipeline("letters")
    pipeline.step(own.registry.get("greet"), inputs={"name": "Ada"})
    return pipeline.start(**options)


def acquire(own: App, **options: Any) -> None:
    own.rate_limiter(RateLimit("model", 1000)).acquire(**options)


def take_manually(**options: Any) -> object:
    with closing(app()) as own:
        own.task(name="greet")(greet)
        with manual(own, **options) as jobs:
            return jobs.enqueued()


def trace(**options: Any) -> object:
    with traced(**options):
        return TraceContext(**options)


def of_batch(name: str) -> Callable[..., object]:
    return with_app(lambda own, **options: getattr(own.batch("letters"), name)(**options))


def of_job(name: str) -> Callable[..., object]:
    def call(own: App, **options: Any) -> object:
        return getattr(own.client, name)(**{"job_id": own.client.jobs()[0].id, **options})

    return with_app(call)


CALLS: dict[str, tuple[Callable[..., object], list[str]]] = {
    "App": (make_app, ["database_url", "transport", "settings", "auto_migrate"]),
    "Settings": (Settings, list(Settings.__struct_fields__)),
    "Settings.load": (lambda **options: Settings.load(environment={}, **options), list(Settings.__struct_fields__)),
    "RabbitmqSettings": (RabbitmqSettings, list(RabbitmqSettings.__struct_fields__)),
    "BrokerQueueSettings": (BrokerQueueSettings, list(BrokerQueueSettings.__struct_fields__)),
    "task name": (make_task, ["name"]),
    "schedule": (with_app(make_schedule), ["name", "rule", "job", "time_zone", "catch_up"]),
    "batch": (
        with_app(lambda own, **options: own.batch(**{"key": "b", **options})),
        ["key", "gate", "on_failed", "on_complete"],
    ),
    "batch.add": (of_batch("add"), ["items"]),
    "batch.add chunk": (
        with_app(lambda own, **options: own.batch("c").add([own.registry.get("greet").item("one", "Ada")], **options)),
        ["chunk"],
    ),
    "batch.failed": (of_batch("failed"), ["limit"]),
    "batch.items": (with_app(lambda own, **options: list(own.batch("letters").items(**options))), ["states"]),
    "batch.retry": (of_batch("retry"), ["keys", "actor"]),
    "batch.waive": (
        with_app(lambda own, **options: own.batch("letters").waive(**{"why": "old", **options})),
        ["keys", "why", "actor"],
    ),
    "batch.cancel": (of_batch("cancel"), ["actor"]),
    "batch.progress": (of_batch("progress"), ["since"]),
    "gate": (with_app(lambda own, **options: own.gate(**{"name": "g", **options})), ["name", "on_open"]),
    "gate.wait": (with_app(lambda own, **options: own.gate("g").wait(**options)), ["timeout"]),
    "rate_limiter": (
        with_app(lambda own, **options: own.rate_limiter(**{"limit": RateLimit("model", 1), **options})),
        ["limit", "shared"],
    ),
    "acquire": (with_app(acquire), ["timeout"]),
    "pipeline": (with_app(lambda own, **options: own.pipeline(**{"name": "p", **options})), ["name", "on_complete"]),
    "pipeline.step": (
        with_app(make_step),
        ["name", "inputs", "parents", "on_failed", "queue", "priority", "max_attempts"],
    ),
    "pipeline.start": (with_app(start_run), ["key"]),
    "client.jobs": (
        with_app(lambda own, **options: own.client.jobs(**options)),
        ["states", "task", "queue", "parent_id", "before", "limit"],
    ),
    "client.job": (of_job("job"), ["job_id"]),
    "client.cancel": (of_job("cancel"), ["job_id", "actor"]),
    "client.failures": (of_job("failures"), ["job_id"]),
    "client.enqueue": (with_app(lambda own, **options: own.client.enqueue(**options)), ["job"]),
    "client.enqueue_many": (with_app(lambda own, **options: own.client.enqueue_many(**options)), ["new_jobs"]),
    "enqueue_many": (with_app(lambda own, **options: own.enqueue_many(**options)), ["jobs"]),
    "task.enqueue_many": (
        with_app(lambda own, **options: own.task(name="other")(greet).enqueue_many(**options)),
        ["arguments"],
    ),
    "task.item": (
        with_app(lambda own, **options: own.registry.get("greet").item(options["key"], "Ada")),
        ["key"],
    ),
    "transaction": (
        with_app(lambda own, **options: own.transaction(**options).__enter__()),
        ["read_only"],
    ),
    "configure_logging": (configure_quietly, ["level", "format"]),
    "manual": (take_manually, ["database_url", "clock"]),
    "ManualClock": (ManualClock, ["start"]),
    "advance": (lambda **options: ManualClock().advance(**options), ["duration"]),
    "traced": (trace, ["trace_id", "correlation_id", "user_id"]),
    "Snooze": (Snooze, ["delay"]),
    "Retryable": (lambda **options: Retryable("later", **options), ["after"]),
    "task": (make_task, [name for name in TaskOptions.__dataclass_fields__ if name != "progress"]),
    "using": (make_request, list(JobOptions.__dataclass_fields__)),
    "RetryPolicy": (RetryPolicy, list(RetryPolicy.__dataclass_fields__)),
    "RateLimit": (make_rate_limit, ["name", "per_second", "burst"]),
    "Worker": (make_worker, ["queues", "concurrency", "shutdown_timeout"]),
    "PayloadLimits": (PayloadLimits, ["max_bytes", "max_depth"]),
}
NAMED_BY_VALUE = {"job_id", "parent_id", "before", "inputs", "parents", "jobs"}
"""The error names the job, step, parameter or list member that is wrong."""
FITS = {("limit_by", type), ("priorities", list), ("keys", dict)}
"""Options that take one of these values after all: a class can be called, and a dict has keys."""
OPTIONS = [(call, option) for call, (_, options) in CALLS.items() for option in options]


@pytest.mark.parametrize(("call", "option"), OPTIONS, ids=str)
@pytest.mark.parametrize("value", NOTHING_FITS, ids=lambda value: type(value).__name__)
def test_a_value_that_fits_no_option_is_refused_by_name(call: str, option: str, value: Any) -> None:
    if (option, type(value)) in FITS:
        return

    with pytest.raises(StagepostError) as refusal:
        CALLS[call][0](**{option: value})

    assert re.search(rf"\b{option}\b", str(refusal.value)) or option in NAMED_BY_VALUE


@pytest.mark.parametrize(("call", "option"), OPTIONS, ids=str)
def test_any_value_is_taken_or_refused_by_our_own_error(call: str, option: str) -> None:
    @settings(max_examples=sized(20, 300), deadline=None)
    @given(value=ANYTHING)
    def check(value: Any) -> None:
        with contextlib.suppress(StagepostError):  # any other error fails this test
            CALLS[call][0](**{option: value})

    check()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: make_task(timeout="5s"),
            "task option timeout is '5s': it must be seconds as a number, a timedelta or None.",
        ),
        (lambda: make_task(queue=None), "task option queue is None: it must be a text."),
        (lambda: make_task(max_running="4"), "task option max_running is '4': it must be a whole number or None."),
        (lambda: make_task(pool="proces"), "task option pool is 'proces': it must be 'auto' or 'process'."),
        (
            lambda: make_task(retry=3),
            (
                "task option retry is 3: it must be a RetryPolicy. For three attempts, write "
                "retry=RetryPolicy(max_attempts=3)."
            ),
        ),
        (
            lambda: make_task(rate_limit="10/m"),
            (
                "task option rate_limit is '10/m': it must be a RateLimit or None. For ten per minute, write "
                'rate_limit=RateLimit("provider", per_second=10 / 60).'
            ),
        ),
        (
            lambda: make_request(delay="5s"),
            "job option delay is '5s': it must be seconds as a number, a timedelta or None.",
        ),
        (lambda: make_worker(queues="mail"), "worker option queues is 'mail': it must be a list of names, ['mail']."),
        (lambda: make_worker(concurrency=0), "worker option concurrency is 0: it must be 1 or more."),
        (lambda: make_request(unique_key=5), "job option unique_key is 5: it must be a text or None."),
        (
            lambda: make_request(delay=float("nan")),
            "job option delay is nan: it must be seconds as a number, a timedelta or None.",
        ),
        (
            lambda: RetryPolicy(retry_on=ValueError),  # type: ignore[arg-type]
            (
                "retry option retry_on is <class 'ValueError'>: it must be a tuple of exception classes. A tuple of "
                "one class ends with a comma: retry_on=(ValueError,)."
            ),
        ),
    ],
    ids=range(12),
)
def test_the_error_says_what_is_valid(make: Callable[[], object], message: str) -> None:
    with pytest.raises(ConfigurationError) as refusal:
        make()

    assert str(refusal.value) == message


def test_every_duration_takes_seconds_or_a_timedelta() -> None:
    minute = dt.timedelta(minutes=1)
    with closing(app()) as own:
        assert own.task(timeout=60)(greet).options.timeout == minute
        assert own.task(name="again", timeout=minute)(greet).options.timeout == minute
    assert RetryPolicy(first_delay=60, minimum_delay=1.5) == RetryPolicy(
        first_delay=minute, minimum_delay=dt.timedelta(seconds=1.5)
    )


@pytest.mark.parametrize("keywords", [(TaskKeywords, TaskOptions), (JobKeywords, JobOptions)], ids=["task", "job"])
def test_editors_complete_the_options_that_exist(keywords: tuple[type, Any]) -> None:
    typed, options = keywords

    assert list(get_type_hints(typed)) == list(options.__dataclass_fields__)


def test_an_option_among_the_arguments_is_answered_with_the_line_to_write() -> None:
    assert set(JobOptions.__dataclass_fields__) == JOB_OPTIONS
    with closing(app()) as own:
        task: Any = own.task(name="greet")(greet)

        for word, option in {"delay": "delay", "countdown": "delay", "eta": "at"}.items():
            with pytest.raises(
                PayloadError, match=rf"`{word}` is not .* [Ww]rite:? using\({option}=…\)\.enqueue\(…\)\.$"
            ):
                task.enqueue("Ada", **{word: 5})
        with pytest.raises(PayloadError, match=r"They are `name`\.$"):
            task.enqueue("Ada", nmae="Bob")


def test_declarations_refuse_what_is_no_job_or_task() -> None:
    with closing(app()) as own:
        task: Any = own.task(name="greet")(greet)
        plain: Any = greet
        made = r"it must be a job\. Make one with greet\.job\(…\)"

        with pytest.raises(ConfigurationError, match=f"schedule 'x': the job is task 'greet': {made}"):
            own.schedule("x", "every 2s", task)
        with pytest.raises(ConfigurationError, match=f"batch 'b': on_complete is task 'greet': {made}"):
            own.batch("b", on_complete=task)
        with pytest.raises(ConfigurationError, match=f"gate 'g': on_open is task 'greet': {made}"):
            own.gate("g", on_open=task)
        with pytest.raises(ConfigurationError, match=f"client.enqueue: the job is task 'greet': {made}"):
            own.client.enqueue(task)
        with pytest.raises(ConfigurationError, match=rf"enqueue_many: number 0 is .*function greet.*: {made}"):
            own.enqueue_many([plain])
        with pytest.raises(ConfigurationError, match=r"a step's task is <function greet .*Register the function"):
            own.pipeline("p").step(plain)
        with pytest.raises(ConfigurationError, match=r"pipeline q: on_complete is <function greet"):
            own.pipeline("q", on_complete=plain)
        assert own.client.jobs() == []


def test_a_schedule_takes_seconds_and_a_zone() -> None:
    with closing(app()) as own:
        task = own.task(name="greet")(greet)

        own.schedule("often", 60, task.job("Ada"))
        own.schedule("daily", "0 9 * * *", task.job("Ada"), time_zone=ZoneInfo("Europe/Berlin"))

        assert (own.declared_schedules["often"].rule, own.declared_schedules["daily"].time_zone) == (
            "every 60s",
            "Europe/Berlin",
        )
        wrong: Any = {"time_zone": 3, "catch_up": "never"}
        for option, value in wrong.items():
            with pytest.raises(ConfigurationError, match=f"schedule 'y': {option} is "):
                own.schedule("y", "every 2s", task.job("Ada"), **{option: value})
        with pytest.raises(ConfigurationError, match="schedule 'y': the rule is nan"):
            own.schedule("y", float("nan"), task.job("Ada"))


def test_two_schedules_or_pipelines_with_one_name_are_refused() -> None:
    with closing(app()) as own:
        task = own.task(name="greet")(greet)
        for _ in range(2):  # as when a module is loaded twice
            own.schedule("often", 60, task.job("Ada"))
            own.pipeline("letters")

        for rule, job in ((61, task.job("Ada")), (60, task.job("Bob"))):
            with pytest.raises(ConfigurationError, match="schedule 'often' is declared twice, with another job, rule"):
                own.schedule("often", rule, job)
        with pytest.raises(PipelineError, match=r"pipeline 'letters' is declared twice: in .*, line \d+, and in "):
            own.pipeline("letters")

        assert own.declared_schedules["often"].rule == "every 60s"


@pytest.mark.parametrize(
    ("word", "line"),
    [
        ("delay", "greet.enqueue(…)"),
        ("apply_async", "greet.using(delay=…, queue=…).enqueue(…)"),
        ("send", "greet.enqueue(…)"),
        ("defer", "greet.enqueue(…)"),
    ],
)
def test_words_of_other_libraries_are_answered_with_the_line_to_write(word: str, line: str) -> None:
    with closing(app()) as own:
        task = own.task(name="greet")(greet)

        with pytest.raises(AttributeError) as hint:
            getattr(task, word)

        assert str(hint.value).endswith(f"Write: {line}")
        assert not hasattr(task, "dely")


@pytest.mark.parametrize("heartbeat", ["abc", "-1", "1.5", "", "99999"])
def test_a_heartbeat_that_is_no_number_of_seconds_is_refused(heartbeat: str) -> None:
    if not heartbeat:
        assert parameters_of("amqp://localhost?heartbeat=").heartbeat == 10  # an empty option is left out
        return

    with pytest.raises(ConfigurationError, match=f"heartbeat is '{heartbeat}': it must be whole seconds"):
        parameters_of(f"amqp://localhost?heartbeat={heartbeat}")
