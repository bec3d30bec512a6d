"""Every migration of Stagepost has a Django migration that applies it."""

from __future__ import annotations

from importlib import import_module
from importlib.resources import files
from typing import Any

import pytest

from stagepost.contrib.django.migration import ApplyStagepostMigration
from stagepost.database.dialect import MYSQL, POSTGRES, SQLITE, Dialect
from stagepost.database.migrate import migrations_of

PACKAGE = "stagepost.contrib.django.migrations"


def django_migrations() -> dict[str, Any]:
    names = sorted(path.name.removesuffix(".py") for path in files(PACKAGE).iterdir() if path.name[0].isdigit())
    return {name: import_module(f"{PACKAGE}.{name}").Migration for name in names}


@pytest.mark.parametrize("dialect", [SQLITE, POSTGRES, MYSQL], ids=lambda dialect: dialect.name)
def test_each_migration_of_stagepost_has_one_of_django(dialect: Dialect) -> None:
    applied = [operation.version for found in django_migrations().values() for operation in found.operations]

    assert applied == [migration.version for migration in migrations_of(dialect)], (
        f"add a file to {PACKAGE} with ApplyStagepostMigration(…) for the new migration"
    )
    assert all(
        isinstance(operation, ApplyStagepostMigration)
        for found in django_migrations().values()
        for operation in found.operations
    )


def test_each_django_migration_depends_on_the_one_before() -> None:
    names = list(django_migrations())

    assert [found.dependencies for found in django_migrations().values()] == [
        [] if number == 0 else [("stagepost", names[number - 1])] for number in range(len(names))
    ]
