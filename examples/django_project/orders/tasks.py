"""Work that follows an order. Stagepost finds this module by its name."""

from django.core.mail import send_mail
from django.utils import timezone

from orders.models import Order
from stagepost.contrib.django import app

try:
    from django.tasks import task
except ImportError:  # Django 5.2 with the package django-tasks
    from django_tasks import task


@app.task
def send_receipt(order_id: int) -> None:
    """Send a mail, unless an earlier attempt has already noted that it did."""
    order = Order.objects.select_related("book").get(id=order_id)
    if order.receipt_sent_at is None:
        send_mail("Your receipt", f"Thank you for buying {order.book.title}.", None, [order.email])
        Order.objects.filter(id=order_id).update(receipt_sent_at=timezone.now())


@task
def count_orders() -> int:
    """Count the orders; Django's own kind of task, which Stagepost stores and runs as well."""
    return Order.objects.count()
