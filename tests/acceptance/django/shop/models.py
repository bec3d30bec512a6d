"""Orders."""

from __future__ import annotations

from django.db import models


class Order(models.Model):
    """An order of one product."""

    product = models.CharField(max_length=100)
