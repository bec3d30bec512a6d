"""Creates the tables of events."""

from typing import ClassVar

from django.db import migrations

from stagepost.contrib.django.migration import ApplyStagepostMigration


class Migration(migrations.Migration):
    dependencies: ClassVar[list[tuple[str, str]]] = [("stagepost", "0002_enqueue_from_sql")]
    operations: ClassVar[list[ApplyStagepostMigration]] = [ApplyStagepostMigration(3)]
