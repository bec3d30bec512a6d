"""Creates Stagepost's tables."""

from typing import ClassVar

from django.db import migrations

from stagepost.contrib.django.migration import ApplyStagepostMigration


class Migration(migrations.Migration):
    initial = True
    dependencies: ClassVar[list[tuple[str, str]]] = []
    operations: ClassVar[list[ApplyStagepostMigration]] = [ApplyStagepostMigration(1)]
