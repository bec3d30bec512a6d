"""Helpers for the checks behind the documentation's code, which are in comments that readers do not see."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from importlib import import_module
from typing import Any
from urllib.parse import unquote, urlsplit, urlunsplit

from stagepost import App
from tests.acceptance.helpers import work

__all__ = [
    "bought",
    "django_order",
    "mysql_options",
    "path_of",
    "rows",
    "sqlalchemy_url",
    "within",
    "work",
]


def rows(app: App, sql: str) -> list[tuple[Any, ...]]:
    """Read what is committed."""
    with app.store.transaction() as connection:
        return [tuple(row) for row in connection.execute(sql, {})]


def bought(app: App, buy: Callable[[], object]) -> None:
    """Demand that a purchase leaves one order and one job for it."""
    app.client.jobs()  # the tables are there before a transaction begins, as the page says

    buy()

    assert rows(app, "select id from orders") == [(42,)]
    assert [job.arguments for job in app.client.jobs()] == [{"order_id": 42}]


def within(opened: Awaitable[Any], act: Callable[[Any], Awaitable[object]]) -> None:
    """Wait for a connection, use it, close it."""

    async def run() -> None:
        connection = await opened
        try:
            await act(connection)
        finally:
            closing = connection.close()
            if closing is not None:
                await closing

    asyncio.run(run())


def path_of(app: App) -> str:
    """Give the file of an app on SQLite."""
    return app.settings.database_url.removeprefix("sqlite:///")


def mysql_options(app: App) -> dict[str, Any]:
    """Say the address of an app's MySQL the way its drivers want it."""
    parts = urlsplit(app.settings.database_url)
    return {
        "host": parts.hostname,
        "port": parts.port or 3306,
        "user": unquote(parts.username or ""),
        "password": unquote(parts.password or ""),
        "database": parts.path.strip("/"),
    }


def sqlalchemy_url(app: App, scheme: str) -> str:
    """Say the address of an app's database with the driver that SQLAlchemy is to use."""
    return urlunsplit(urlsplit(app.settings.database_url)._replace(scheme=scheme))


def django_order(app: App) -> Any:
    """Set Django up on an app's PostgreSQL, and make a model of the table `orders`."""
    _set_up_django(app.settings.database_url)
    models = import_module("django.db.models")
    meta = type("Meta", (), {"app_label": "shop", "db_table": "orders", "managed": False})
    fields = {"id": models.IntegerField(primary_key=True), "Meta": meta, "__module__": __name__}
    return type(models.Model)("Order", (models.Model,), fields)


def _set_up_django(url: str) -> None:
    parts = urlsplit(url)
    database = {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": parts.path.strip("/"),
        "HOST": parts.hostname,
        "PORT": parts.port or 5432,
        "USER": unquote(parts.username or ""),
        "PASSWORD": unquote(parts.password or ""),
    }
    import_module("django.conf").settings.configure(DATABASES={"default": database}, USE_TZ=True)
    import_module("django").setup()
