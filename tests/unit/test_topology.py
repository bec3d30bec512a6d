"""The topology at the broker: names, limits, and where unconsumed messages go."""

from __future__ import annotations

import pytest

from stagepost.config.rabbitmq import BrokerQueueSettings, RabbitmqSettings
from stagepost.errors import ConfigurationError
from stagepost.transport.rabbitmq.admin import why_no_priorities
from stagepost.transport.rabbitmq.topology import QueuePlan, topology_of

STEPS = ("extract_audio", "asr", "translate", "tts", "mux_video", "tts_compensation")


def plan_of(queue: str, settings: RabbitmqSettings) -> QueuePlan:
    [plan] = [plan for plan in topology_of(settings, [queue]).queues if plan.carries == queue]
    return plan


def test_the_names_are_those_of_the_document() -> None:
    topology = topology_of(RabbitmqSettings(), STEPS)

    assert topology.exchange == "task_exchange"
    assert {plan.name for plan in topology.queues} == {
        *(f"task.{step}" for step in STEPS),
        "task.dlq",
        "task.results",
    }
    assert {plan.carries for plan in topology.queues} == {*STEPS, None}


def test_another_prefix_leaves_nothing_in_common() -> None:
    one, other = (topology_of(RabbitmqSettings(prefix=prefix), STEPS) for prefix in ("task", "shop"))

    assert one.exchange != other.exchange
    assert not {plan.name for plan in one.queues} & {plan.name for plan in other.queues}


def test_exchange_and_queues_can_be_named() -> None:
    settings = RabbitmqSettings(exchange="main", queue={"asr": BrokerQueueSettings(name="speech")})

    assert topology_of(settings, ["asr"]).exchange == "main"
    assert plan_of("asr", settings).name == settings.routing_key("asr") == "speech"


def test_messages_that_leave_a_queue_unconsumed_become_dead_letters() -> None:
    assert plan_of("asr", RabbitmqSettings()).arguments == {
        "x-queue-type": "quorum",
        "x-dead-letter-exchange": "task_exchange",
        "x-dead-letter-routing-key": "task.dlq",
        "x-dead-letter-strategy": "at-least-once",
        "x-overflow": "reject-publish",
    }


def test_classic_queues_have_no_arguments_that_only_quorum_queues_know() -> None:
    assert plan_of("asr", RabbitmqSettings(queue_type="classic")).arguments == {
        "x-queue-type": "classic",
        "x-dead-letter-exchange": "task_exchange",
        "x-dead-letter-routing-key": "task.dlq",
        "x-overflow": "reject-publish",
    }


def test_a_queue_has_its_own_limits_or_those_of_all_queues() -> None:
    settings = RabbitmqSettings(
        message_ttl_seconds=60,
        max_length=1000,
        queue={"asr": BrokerQueueSettings(message_ttl_seconds=0.0015, max_length=7)},
    )

    limits = {
        queue: (plan_of(queue, settings).arguments["x-message-ttl"], plan_of(queue, settings).arguments["x-max-length"])
        for queue in ("asr", "tts")
    }

    assert limits == {"asr": (2, 7), "tts": (60_000, 1000)}


def test_a_classic_queue_has_a_level_above_each_of_its_priorities() -> None:
    settings = RabbitmqSettings(queue={"asr": BrokerQueueSettings(queue_type="classic", priorities=[-5, 1, 100])})

    asr, tts = plan_of("asr", settings), plan_of("tts", settings)

    assert (asr.arguments["x-queue-type"], asr.arguments["x-max-priority"]) == ("classic", 3)
    assert "x-dead-letter-strategy" not in asr.arguments
    assert (tts.arguments["x-queue-type"], tts.priorities) == ("quorum", ())
    assert "x-max-priority" not in tts.arguments


def test_a_quorum_queue_needs_no_argument_for_its_two_levels() -> None:
    settings = RabbitmqSettings(priorities=[1])

    assert plan_of("asr", settings).arguments == plan_of("asr", RabbitmqSettings()).arguments
    assert plan_of("asr", settings).priorities == (1,)


@pytest.mark.parametrize(
    ("version", "is_refused"),
    [("3.10.8", True), ("3.13.7", True), ("4.0.0", False), ("4.2.1", False), ("10.0", False), ("", False)],
)
def test_priorities_of_a_quorum_queue_need_a_broker_that_has_them(version: str, is_refused: bool) -> None:
    quorum = plan_of("asr", RabbitmqSettings(priorities=[1]))
    classic = plan_of("asr", RabbitmqSettings(priorities=[1], queue_type="classic"))

    assert (why_no_priorities(quorum, version) is not None) == is_refused
    assert why_no_priorities(classic, version) is None
    assert why_no_priorities(plan_of("asr", RabbitmqSettings()), version) is None


@pytest.mark.parametrize("name", ["task.dlq", "task.results"])
def test_the_dead_letter_and_answer_queues_have_no_limits(name: str) -> None:
    [plan] = [
        plan
        for plan in topology_of(RabbitmqSettings(message_ttl_seconds=1, max_length=1), ["asr"]).queues
        if plan.name == name
    ]

    assert not {"x-message-ttl", "x-max-length"} & plan.arguments.keys()


def test_dead_letters_do_not_become_dead_letters_again() -> None:
    [plan] = [plan for plan in topology_of(RabbitmqSettings(), []).queues if plan.name == "task.dlq"]

    assert plan.arguments == {"x-queue-type": "quorum"}


@pytest.mark.parametrize("queue", ["dlq", "results"])
def test_a_queue_cannot_have_a_reserved_name(queue: str) -> None:
    with pytest.raises(ConfigurationError, match=rf"queue {queue} and Stagepost itself would both use task.{queue}"):
        topology_of(RabbitmqSettings(), [queue])

    renamed = RabbitmqSettings(queue={queue: BrokerQueueSettings(name="other")})
    assert plan_of(queue, renamed).name == "other"


def test_two_queues_cannot_share_a_name() -> None:
    settings = RabbitmqSettings(queue={"asr": BrokerQueueSettings(name="task.tts")})

    with pytest.raises(ConfigurationError, match=r"queue asr and queue tts would both use task\.tts"):
        topology_of(settings, ["asr", "tts"])


def test_a_name_that_is_too_long_for_the_broker_is_refused() -> None:
    assert plan_of("q" * 191, RabbitmqSettings(prefix="p" * 63)).name
    with pytest.raises(ConfigurationError, match="256 characters of 255 possible"):
        topology_of(RabbitmqSettings(prefix="p" * 64), ["q" * 191])
