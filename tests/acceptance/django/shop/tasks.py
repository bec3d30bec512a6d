"""Stagepost's tasks of the shop; `autodiscover` imports them."""

from __future__ import annotations

import os

from stagepost.contrib.django import app
from tests.acceptance.django.shop import django_tasks
from tests.acceptance.django.shop.models import Order

__all__ = ["count_orders", "count_orders_async", "django_tasks", "receipt", "rename"]


@app.task
def receipt(order_id: int) -> str:
    """Read the order, so that a missing one is noticed."""
    return f"receipt for {Order.objects.get(id=order_id).product}"


@app.task
def rename(order_id: int, product: str) -> None:
    """Change an order."""
    Order.objects.filter(id=order_id).update(product=product)


@app.task(pool="process")
def count_orders() -> tuple[int, int]:
    """Use models in another process; returns its id, too."""
    return Order.objects.count(), os.getpid()


@app.task
async def count_orders_async() -> int:
    """Use models in a coroutine."""
    return int(await Order.objects.acount())
