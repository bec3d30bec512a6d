"""Stagepost's tasks of the shop; `autodiscover` imports them."""

from __future__ import annotations

import os
from typing import Any

from asgiref.sync import sync_to_async
from django.db import connections

from stagepost.contrib.django import app
from tests.acceptance.django.shop import django_tasks
from tests.acceptance.django.shop.models import Order

__all__ = [
    "count_orders",
    "count_orders_async",
    "django_tasks",
    "receipt",
    "rename",
    "use_connection",
    "use_connection_async",
    "used",
]


@app.task
def receipt(order_id: int) -> str:
    """Read the order, so that a missing one is noticed."""
    return f"receipt for {Order.objects.get(id=order_id).product}"


@app.task
def rename(order_id: int, product: str) -> None:
    """Change an order."""
    Order.objects.filter(id=order_id).update(product=product)


used: list[Any] = []
"""The Django connections of handlers."""


@app.task
def use_connection() -> None:
    """Open a connection and remember it."""
    Order.objects.count()
    used.append(connections["default"])


@app.task
async def use_connection_async() -> None:
    """Open a connection where async handlers' queries run, and remember it."""
    await sync_to_async(use_connection)()


@app.task(pool="process")
def count_orders() -> tuple[int, int]:
    """Use models in another process; returns its id, too."""
    return Order.objects.count(), os.getpid()


@app.task
async def count_orders_async() -> int:
    """Use models in a coroutine."""
    return int(await Order.objects.acount())
