"""Enqueue inside Django's `transaction.atomic`: the job is stored by Django's commit, or not at all.

It prints:

    receipt 1 sent
    a rolled back block leaves no job: True
"""

import asyncio
import os

import django
from django.db import connection, transaction

from stagepost import App, Worker
from stagepost.errors import JobNotFound

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "settings")
django.setup()

app = App("sqlite:///django.db")


@app.task
def send_receipt(order_id: int) -> str:
    """Stands for any work that should follow the commit."""
    return f"receipt {order_id} sent"


class OutOfStock(Exception):
    """Rolls the block back."""


app.migrate()  # makes Stagepost's tables; `stagepost migrate` does it, too

with transaction.atomic():
    job = send_receipt.using(connection).enqueue(1)

try:
    with transaction.atomic():
        lost = send_receipt.using(connection).enqueue(2)
        raise OutOfStock
except OutOfStock:
    pass

asyncio.run(Worker(app).run(until_idle=True))
print(job.result(timeout=5))
try:
    app.client.job(lost.id)
except JobNotFound:
    print("a rolled back block leaves no job: True")
