"""Creates the function, procedure or view that enqueues jobs from SQL."""

from typing import ClassVar

from django.db import migrations

from stagepost.contrib.django.migration import ApplyStagepostMigration


class Migration(migrations.Migration):
    dependencies: ClassVar[list[tuple[str, str]]] = [("stagepost", "0001_initial")]
    operations: ClassVar[list[ApplyStagepostMigration]] = [ApplyStagepostMigration(2)]
