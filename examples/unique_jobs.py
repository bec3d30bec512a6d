"""Unique keys: one live job per key, and what asking again does to it.

It prints:

    keep: the same job, unchanged: version 1
    replace: the same job, new arguments: version 3
    debounce: the same job, due later: scheduled
    for an hour: the same job, even after its end: True
"""

import asyncio
from datetime import timedelta

from stagepost import App, OnConflict, Worker

app = App("sqlite:///:memory:")


@app.task
def index(version: int) -> str:
    """Stands for work that only needs to be done once, for the newest version."""
    return f"version {version}"


def work() -> None:
    """Run jobs until none is due."""
    asyncio.run(Worker(app).run(until_idle=True))


first = index.using(unique_key="page:1").enqueue(1)
again = index.using(unique_key="page:1").enqueue(2)
assert again.id == first.id
work()
print(f"keep: the same job, unchanged: {first.result(timeout=5)}")

first = index.using(unique_key="page:1").enqueue(1)  # the key is free again: its job has ended
index.using(unique_key="page:1", on_conflict=OnConflict.REPLACE).enqueue(3)
work()
print(f"replace: the same job, new arguments: {first.result(timeout=5)}")

first = index.using(unique_key="page:1").enqueue(1)
index.using(unique_key="page:1", on_conflict=OnConflict.DEBOUNCE, delay=60).enqueue(4)
print(f"debounce: the same job, due later: {app.client.job(first.id).state}")

first = index.using(unique_key="page:2", unique_for=timedelta(hours=1)).enqueue(1)
work()
again = index.using(unique_key="page:2", unique_for=timedelta(hours=1)).enqueue(2)
print(f"for an hour: the same job, even after its end: {again.id == first.id}")
