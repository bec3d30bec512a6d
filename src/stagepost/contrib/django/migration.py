"""The operation of a Django migration that applies one of Stagepost's migrations."""

from __future__ import annotations

from typing import Any

from django.db.migrations.exceptions import IrreversibleError
from django.db.migrations.operations.base import Operation, OperationCategory

from stagepost.contrib.django import app
from stagepost.database.adapters.django import dialect_of
from stagepost.database.migrate import Migration, apply_one, migrations_of

__all__ = ["ApplyStagepostMigration"]


class ApplyStagepostMigration(Operation):
    """Creates or updates Stagepost's tables in the database that the project uses for jobs, and in no other.

    A migration that `stagepost migrate` has already applied is only noted as applied by Django as well.
    """

    category = OperationCategory.SQL
    reduces_to_sql = True
    reversible = True

    def __init__(self, version: int) -> None:
        self.version = version

    def state_forwards(self, app_label: str, state: Any) -> None:
        """Change no models: there are none."""

    def database_forwards(self, app_label: str, schema_editor: Any, from_state: Any, to_state: Any) -> None:  # noqa: ARG002
        """Run the statements of the migration, or let `sqlmigrate` collect them."""
        connection = schema_editor.connection
        if not self._concerns(connection):
            return
        dialect = dialect_of(connection)
        if schema_editor.collect_sql:
            for statement in self._migration(connection).script:
                schema_editor.execute(statement, params=None)
            return

        def execute(sql: str) -> list[Any]:
            with connection.cursor() as cursor:
                cursor.execute(sql)
                return list(cursor.fetchall()) if cursor.description else []

        apply_one(self._migration(connection), dialect, execute)

    def database_backwards(self, app_label: str, schema_editor: Any, from_state: Any, to_state: Any) -> None:  # noqa: ARG002
        """Refuse: the tables hold jobs that have not run yet."""
        if self._concerns(schema_editor.connection):
            raise IrreversibleError(
                f"Stagepost's migration {self.version:04} cannot be reversed, because that would delete jobs. To "
                f"remove Stagepost, drop the tables whose names begin with stagepost_, then run "
                f"`manage.py migrate --fake stagepost zero`."
            )

    def describe(self) -> str:
        """Describe the operation for `migrate --plan`."""
        return f"Apply Stagepost's migration {self.version:04}"

    @property
    def migration_name_fragment(self) -> str:
        """Name the operation for `makemigrations`."""
        return f"stagepost_{self.version:04}"

    def _concerns(self, connection: Any) -> bool:
        return bool(connection.alias == app.configuration.alias)

    def _migration(self, connection: Any) -> Migration:
        return next(known for known in migrations_of(dialect_of(connection)) if known.version == self.version)
