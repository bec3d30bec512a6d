"""Settings from files, the environment and code, and the errors for invalid ones."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import pytest

from stagepost import App, Settings
from stagepost.config.rabbitmq import BrokerQueueSettings, RabbitmqSettings
from stagepost.config.urls import masked
from stagepost.errors import ConfigurationError

FILE = """
concurrency = 4
transport = "amqp://broker/shop"

[rabbitmq]
queues = ["mail", "films"]
prefix = "shop"
prefetch = 5

[rabbitmq.queue.films]
name = "cinema"
prefetch = 1
message_ttl_seconds = 0.5
max_length = 1000
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    made = tmp_path / "stagepost.toml"
    made.write_text(FILE, encoding="utf-8")
    return made


def load(file: Path | None = None, given: dict[str, Any] | None = None, **environment: str) -> Settings:
    return Settings.load(file, environment=environment, **(given or {}))


def test_by_default_no_queue_is_carried_by_a_broker() -> None:
    settings = load()

    assert (settings.transport, settings.rabbitmq) == (None, RabbitmqSettings())


def test_a_file_has_a_section_for_the_broker_and_one_for_each_queue(file: Path) -> None:
    assert load(file).rabbitmq == RabbitmqSettings(
        queues=["mail", "films"],
        prefix="shop",
        prefetch=5,
        queue={"films": BrokerQueueSettings(name="cinema", prefetch=1, message_ttl_seconds=0.5, max_length=1000)},
    )


def test_the_environment_wins_over_the_file_setting_by_setting(file: Path) -> None:
    rabbitmq = load(file, STAGEPOST_RABBITMQ_PREFETCH="9", STAGEPOST_RABBITMQ_LOST_AFTER_SECONDS="2.5").rabbitmq

    assert (rabbitmq.prefetch, rabbitmq.lost_after_seconds, rabbitmq.prefix) == (9, 2.5, "shop")
    assert rabbitmq.queue["films"].name == "cinema"


def test_the_environment_is_enough() -> None:
    settings = load(
        STAGEPOST_TRANSPORT="amqps://broker",
        STAGEPOST_RABBITMQ_QUEUES="mail, films,",
        STAGEPOST_RABBITMQ_DECLARE="false",
        STAGEPOST_RABBITMQ_QUEUE_TYPE="classic",
    )

    assert settings.transport == "amqps://broker"
    assert settings.rabbitmq == RabbitmqSettings(queues=["mail", "films"], declare=False, queue_type="classic")


def test_a_secret_may_be_in_a_file_of_its_own(tmp_path: Path) -> None:
    secret, queues = tmp_path / "url", tmp_path / "queues"
    secret.write_text("amqp://ada:geheim@broker\n", encoding="utf-8")
    queues.write_text("mail,films\n", encoding="utf-8")

    settings = load(STAGEPOST_TRANSPORT_FILE=str(secret), STAGEPOST_RABBITMQ_QUEUES_FILE=str(queues))

    assert settings.transport == "amqp://ada:geheim@broker"
    assert settings.rabbitmq.queues == ["mail", "films"]


def test_a_secret_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"STAGEPOST_TRANSPORT_FILE.*Name a file that this user can read"):
        load(STAGEPOST_TRANSPORT_FILE=str(tmp_path / "missing"))


def test_arguments_in_code_override_everything(file: Path) -> None:
    given = RabbitmqSettings(prefix="code")

    assert load(file, {"rabbitmq": given}, STAGEPOST_RABBITMQ_PREFIX="environment").rabbitmq == given


BAD: list[tuple[str, str]] = [
    ("rabbitmq = 5", r"Expected `object`, got `int` - at `\$\.rabbitmq`"),
    ("[rabbitmq]\nprefech = 1", r"unknown field `prefech` - at `\$\.rabbitmq`\. Valid fields are: queues, prefix,"),
    (
        "[rabbitmq.queue.mail]\nprefech = 1",
        r"unknown field `prefech`.*Valid fields are: name, prefetch, message_ttl_seconds",
    ),
    ("[rabbitmq]\nqueues = 'mail'", "Expected `array"),
    ("[rabbitmq]\nqueue_type = 'mirrored'", "Invalid enum value 'mirrored'"),
    ("[rabbitmq]\nprefetch = -1", "rabbitmq.prefetch is -1: it must be 0 to 65,535"),
    ("[rabbitmq]\nprefetch = 65536", "rabbitmq.prefetch is 65536"),
    ("[rabbitmq]\nmax_length = 0", "rabbitmq.max_length is 0: it must be 1 to"),
    ("[rabbitmq]\nmessage_ttl_seconds = 0", "rabbitmq.message_ttl_seconds is 0"),
    ("[rabbitmq]\nmessage_ttl_seconds = inf", "rabbitmq.message_ttl_seconds is inf"),
    ("[rabbitmq.queue.mail]\nmax_length = 0", "rabbitmq.queue.mail.max_length is 0"),
    ("[rabbitmq]\nlost_after_seconds = 0", "rabbitmq.lost_after_seconds is 0.*more than 0 seconds"),
    ("[rabbitmq]\nquiet_time_seconds = nan", "rabbitmq.quiet_time_seconds is nan"),
    ("[rabbitmq]\nmax_sends = 0", "rabbitmq.max_sends is 0: it must be 1 to 1,000,000"),
    ("[rabbitmq]\nconfirm_timeout_seconds = inf", "rabbitmq.confirm_timeout_seconds is inf"),
    ("[rabbitmq]\nprefix = 'my shop'", "rabbitmq.prefix is 'my shop': use 1 to 180 letters"),
    ("[rabbitmq]\nexchange = '#'", "rabbitmq.exchange is '#'"),
    ("[rabbitmq.queue.mail]\nname = ''", "rabbitmq.queue.mail.name is ''"),
    ("[rabbitmq]\nqueue_type = 'classic'\npriorities = [5, 5]", r"rabbitmq.priorities is \[5, 5\]:.*smallest first"),
    ("[rabbitmq]\npriorities = [32768]", r"rabbitmq.priorities is \[32768\]: give job priorities from -32767 to 32767"),
    ("[rabbitmq]\nqueue_type = 'classic'\npriorities = [1,2,3,4,5,6,7,8,9,10,11]", "has 11 numbers: give at most 10"),
    ("[rabbitmq]\npriorities = [1, 2]", r"rabbitmq.priorities is \[1, 2\], and a quorum queue has two levels"),
    (
        "[rabbitmq]\nqueue_type = 'classic'\n[rabbitmq.queue.mail]\nqueue_type = 'quorum'\npriorities = [1, 2]",
        r"rabbitmq.queue.mail.priorities is \[1, 2\], and a quorum queue",
    ),
    ("[rabbitmq]\npriorities = [1]\n[rabbitmq.queue.mail]\nprefetch = 0", "rabbitmq.queue.mail.prefetch is 0, so a"),
    ("transport = 'redis://broker'", "transport begins with 'redis': use amqp"),
    ("trnsport = 1", "unknown field `trnsport`.*Valid fields are: database_url, transport, rabbitmq,"),
]


@pytest.mark.parametrize(("text", "why"), BAD, ids=[text.replace("\n", " ") for text, _ in BAD])
def test_an_invalid_setting_is_named_with_the_valid_values(text: str, why: str, tmp_path: Path) -> None:
    file = tmp_path / "stagepost.toml"
    file.write_text(text, encoding="utf-8")

    with pytest.raises(ConfigurationError, match=why):
        load(file)


def test_an_error_names_the_variable_the_value_and_the_file(file: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"^STAGEPOST_RABBITMQ_PREFETCH is 'many': Expected `int \| null`"):
        load(file, STAGEPOST_RABBITMQ_PREFETCH="many")
    with pytest.raises(
        ConfigurationError, match=r"^STAGEPOST_CONCURRENCY is '0': concurrency is 0: it must be between 1"
    ):
        load(file, STAGEPOST_CONCURRENCY="0")
    with pytest.raises(ConfigurationError, match=r"^pool_size is 0: it must be between 1 and 10,000"):
        load(file, {"pool_size": 0}, STAGEPOST_POOL_SIZE="4")
    file.write_text("concurrency = 'many'", encoding="utf-8")
    with pytest.raises(
        ConfigurationError, match=r"^settings file .*stagepost\.toml: Expected `int`, got `str` - at `\$\.con"
    ):
        load(file)


@pytest.mark.parametrize(
    "url",
    ["postgresql://ada:geheim@db:port/shop", "mysql://ada:geheim@[db/shop", "geheim", "redis://:geheim@cache", ""],
)
def test_a_malformed_url_is_refused_without_being_shown(url: str) -> None:
    for build in (lambda: Settings(database_url=url), lambda: load(STAGEPOST_DATABASE_URL=url), lambda: App(url)):
        with pytest.raises(
            ConfigurationError, match=r"database_url (begins with|is not a URL|.* cannot be read)"
        ) as refusal:
            build()
        assert "geheim" not in str(refusal.value)


def test_a_transport_that_cannot_work_is_refused_where_it_is_given() -> None:
    for url, why in (("amqp://broker?heartbeat=abc", "heartbeat is 'abc'"), ("amqp://broker?hart=1", "option 'hart'")):
        with pytest.raises(ConfigurationError, match=why):
            App("sqlite://", transport=url)


def test_a_misspelt_variable_is_named_once(caplog: pytest.LogCaptureFixture) -> None:
    misspelt = {"STAGEPOST_DATABSE_URL": "x", "STAGEPOST_RABBITMQ_PREFETHC_FILE": "x"}
    others = {
        "STAGEPOST_TEST_POSTGRES_URL": "x",
        "STAGEPOST_SERVICE_HOST": "x",
        "STAGEPOST_PORT": "x",
        "OTHER_URL": "x",
    }

    for _ in range(2):
        Settings.load(environment={**misspelt, **others, "STAGEPOST_APP": "shop", "STAGEPOST_LOG_LEVEL": "info"})

    assert [record.getMessage().partition(" is ignored")[0] for record in caplog.records] == [
        "the environment variable STAGEPOST_DATABSE_URL",
        "the environment variable STAGEPOST_RABBITMQ_PREFETHC_FILE",
    ]
    assert "Did you mean STAGEPOST_DATABASE_URL?" in caplog.text


def test_an_app_without_a_url_says_where_its_jobs_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("STAGEPOST_DATABASE_URL", raising=False)
    caplog.set_level("INFO", logger="stagepost")

    for _ in range(2):
        with closing(App()) as app:
            assert app.client.jobs() == app.client.jobs()

    new, known = [(record.levelname, record.getMessage()) for record in caplog.records if "no database" in record.msg]
    assert new[0] == "WARNING"
    assert f"the new file {tmp_path}/stagepost.db. To use another database, set STAGEPOST_DATABASE_URL" in new[1]
    assert known == (
        "INFO",
        f"no database is set, so jobs are in {tmp_path}/stagepost.db. To use another, set STAGEPOST_DATABASE_URL",
    )


def test_a_queue_inherits_the_settings_for_all_queues() -> None:
    settings = RabbitmqSettings(
        prefetch=5, message_ttl_seconds=60, queue={"films": BrokerQueueSettings(prefetch=0, max_length=9)}
    )

    mail = BrokerQueueSettings(prefetch=5, message_ttl_seconds=60, queue_type="quorum", priorities=[])
    assert settings.of("mail") == mail
    assert settings.of("films") == msgspec.structs.replace(mail, prefetch=0, max_length=9)


def test_prefetch_follows_the_worker_unless_it_is_set() -> None:
    settings = RabbitmqSettings(priorities=[1], queue={"films": BrokerQueueSettings(prefetch=1)})

    assert (settings.of("mail").prefetch, settings.of("films").prefetch) == (None, 1)


def test_a_queue_may_have_priorities_and_a_type_of_its_own() -> None:
    settings = RabbitmqSettings(
        priorities=[1],
        queue={
            "films": BrokerQueueSettings(priorities=[]),
            "mail": BrokerQueueSettings(queue_type="classic", priorities=[-5, 1, 100]),
        },
    )

    assert [settings.of("other").message_priority(one) for one in (-32768, 0, 1, 32767)] == [0, 0, 5, 5]
    assert settings.of("films").message_priority(100) is None
    of_mail = [settings.of("mail").message_priority(one) for one in (-32768, -6, -5, 0, 1, 99, 100, 32767)]
    assert of_mail == [0, 0, 1, 1, 2, 2, 3, 3]


@pytest.mark.parametrize(("queues", "carried"), [(None, ["mail", "films"]), (["films"], ["films"]), ([], [])])
def test_all_queues_are_carried_unless_some_are_named(queues: list[str] | None, carried: list[str]) -> None:
    assert RabbitmqSettings(queues=queues).carried(["mail", "films"]) == carried


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("amqp://ada:geheim@broker:5672/shop", "amqp://ada:***@broker:5672/shop"),
        ("amqp://ada@broker/shop", "amqp://ada@broker/shop"),
        ("postgresql://broker:broker@broker/broker", "postgresql://broker:***@broker/broker"),
        ("sqlite:///stagepost.db", "sqlite:///stagepost.db"),
    ],
)
def test_a_password_is_not_shown(url: str, shown: str) -> None:
    assert masked(url) == shown
