"""Enqueue with a SQLAlchemy session: the job is stored by the session's commit, with your objects.

It prints:

    shipped: tea
"""

import asyncio

from sqlalchemy import create_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

from stagepost import App, Worker

app = App("sqlite:///shop.db")
engine = create_engine("sqlite:///shop.db")


class Base(DeclarativeBase):
    """Your models."""


class Order(Base):
    """An order of the shop."""

    __tablename__ = "session_orders"
    id: Mapped[int] = mapped_column(primary_key=True)
    item: Mapped[str]


@app.task
def ship(order_id: int) -> str:
    """Read the order that was committed with this job."""
    with Session(engine) as session:
        return f"shipped: {session.get_one(Order, order_id).item}"


app.migrate()  # makes Stagepost's tables; `stagepost migrate` does it, too
Base.metadata.create_all(engine)

with Session(engine) as session, session.begin():
    order = Order(item="tea")
    session.add(order)
    session.flush()  # so that the order has its id
    job = ship.using(session).enqueue(order.id)

asyncio.run(Worker(app).run(until_idle=True))
print(job.result(timeout=5))
