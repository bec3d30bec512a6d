"""URLs are shown without their secrets, however they are written."""

from __future__ import annotations

import pytest

from stagepost import Settings
from stagepost.config.urls import masked, safe_cause, split_url, unreadable_url, without_secrets
from stagepost.errors import ConfigurationError

SECRET = "canary"


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql://shop@db/app", "postgresql://shop@db/app"),
        ("postgresql://shop:canary@db:5432/app", "postgresql://shop:***@db:5432/app"),
        ("postgresql://:canary@db/app", "postgresql://:***@db/app"),
        ("mysql://shop:p%40canary@db/app?charset=utf8mb4", "mysql://shop:***@db/app?charset=utf8mb4"),
        ("amqps://shop:canary@mq/%2f?heartbeat=5", "amqps://shop:***@mq/%2f?heartbeat=5"),
        ("postgresql://db/app?password=canary&sslmode=require", "postgresql://db/app?password=***&sslmode=require"),
        (
            "postgresql://db/app?sslmode=require&sslpassword=canary",
            "postgresql://db/app?sslmode=require&sslpassword=***",
        ),
        ("mysql://db/app?ssl_key_password=canary", "mysql://db/app?ssl_key_password=***"),
        ("postgresql://db/app?oauth_client_secret=canary", "postgresql://db/app?oauth_client_secret=***"),
        ("sqlite:///file.db", "sqlite:///file.db"),
    ],
)
def test_a_url_is_shown_without_its_secrets(url: str, shown: str) -> None:
    assert masked(url) == shown


@pytest.mark.parametrize("mark", [*"%@/?#:[]& '\"\\", "://", "%4", "ü", "\U0001f511"])
@pytest.mark.parametrize("scheme", ["postgresql", "mysql", "amqp"])
def test_a_password_that_is_not_encoded_is_not_shown(scheme: str, mark: str) -> None:
    url = f"{scheme}://shop:{SECRET}{mark}{SECRET}@db/app"

    assert SECRET not in masked(url)
    assert SECRET not in str(unreadable_url("database URL", url, f"driver says {SECRET}"))
    assert SECRET not in without_secrets(f'no such host "{SECRET}{mark}{SECRET}"', url)


@pytest.mark.parametrize(
    "text", [f"shop:{SECRET}@db/app", f"host=db password={SECRET}", f"host=db password='{SECRET}'"]
)
def test_what_is_no_url_is_masked_as_well(text: str) -> None:
    assert SECRET not in masked(text)


@pytest.mark.parametrize(
    "url", [f"mysql://shop:{SECRET}/{SECRET}@db/app", f"mysql://shop:12/{SECRET}@db/app", "mysql://[db/app"]
)
def test_a_url_that_cannot_be_read_is_refused_with_what_to_do(url: str) -> None:
    with pytest.raises(ConfigurationError, match=r"cannot be read.*Percent-encode") as caught:
        split_url("database URL", url)

    assert SECRET not in str(caught.value)
    assert caught.value.__suppress_context__ or caught.value.__context__ is None


def test_secrets_are_replaced_in_the_words_of_a_driver_in_every_form() -> None:
    url = "postgresql://shop:can%40ary@db/app?sslpassword=key%2Fword"

    text = without_secrets("can%40ary can@ary key%2Fword key/word shop db", url)

    assert text == "*** *** *** *** shop db"


def test_a_password_that_is_also_the_user_is_not_replaced() -> None:
    assert (
        without_secrets('role "shop" does not exist', "postgresql://shop:shop@db/app") == 'role "shop" does not exist'
    )


def test_an_error_that_quotes_a_secret_is_no_cause() -> None:
    url = f"postgresql://shop:{SECRET}@db/app"
    inner, outer = ValueError(f"bad {SECRET}"), OSError("harmless")
    outer.__cause__ = inner

    assert safe_cause(OSError("harmless"), url) is not None
    assert safe_cause(inner, url) is None
    assert safe_cause(outer, url) is None


def test_settings_are_shown_without_secrets() -> None:
    settings = Settings(
        database_url=f"mysql://shop:{SECRET}@db/app", transport=f"amqp://shop:{SECRET}@mq/", concurrency=3
    )

    assert repr(settings) == (
        "Settings(database_url='mysql://shop:***@db/app', transport='amqp://shop:***@mq/', concurrency=3)"
    )
