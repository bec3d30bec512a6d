"""Your rows and Stagepost's job in one transaction: when you enqueue, and when the handler is done.

It prints:

    order 1: paid
    order 2 was rolled back, and its job with it: True
"""

import asyncio
import sqlite3
from contextlib import closing

from stagepost import App, JobContext, Worker
from stagepost.errors import JobNotFound

app = App("sqlite:///shop.db")


def connect() -> sqlite3.Connection:
    """Open a connection of your own, as your code does anyway."""
    return sqlite3.connect("shop.db")


@app.task
def charge(job: JobContext, order_id: int) -> None:
    """Mark the order as paid and end the job in the same commit: both happen, or neither."""
    with closing(connect()) as connection, connection:
        connection.execute("update orders set state = 'paid' where id = ?", (order_id,))
        job.complete(connection)  # raises LeaseLost, and so rolls back, if another attempt took over


def place_order(order_id: int, *, in_stock: bool) -> str:
    """Store the order and ask for its job in one commit; returns the job's id."""
    with closing(connect()) as connection, connection:
        connection.execute("insert into orders values (?, 'placed')", (order_id,))
        job = charge.using(connection).enqueue(order_id)
        if not in_stock:
            connection.rollback()
        return job.id


with closing(connect()) as connection, connection:
    connection.executescript("drop table if exists orders; create table orders (id integer primary key, state text)")
app.migrate()  # makes Stagepost's tables; `stagepost migrate` does it, too

place_order(1, in_stock=True)
lost = place_order(2, in_stock=False)
asyncio.run(Worker(app).run(until_idle=True))

with closing(connect()) as connection:
    for order_id, state in connection.execute("select id, state from orders"):
        print(f"order {order_id}: {state}")
try:
    app.client.job(lost)
except JobNotFound:
    print("order 2 was rolled back, and its job with it: True")
