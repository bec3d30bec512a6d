"""A Flask application: an order and its job are stored in one transaction of a SQLAlchemy session.

Start it together with a worker in the same process:

    python flask_app.py

Or start both in processes of their own:

    flask --app flask_app:api run
    stagepost worker --app flask_app:jobs
"""

import os

from flask import Flask, request
from sqlalchemy import create_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

from stagepost import App, Worker
from stagepost.errors import JobNotFound

jobs = App("sqlite:///shop.db")
engine = create_engine("sqlite:///shop.db")
api = Flask(__name__)


class Base(DeclarativeBase):
    """Your models."""


class Order(Base):
    """An order of the shop."""

    __tablename__ = "flask_orders"
    id: Mapped[int] = mapped_column(primary_key=True)
    item: Mapped[str]


@jobs.task
def confirm(order_id: int) -> str:
    """Read the order that was committed with this job."""
    with Session(engine) as session:
        return f"confirmed: {session.get_one(Order, order_id).item}"


@api.post("/orders")
def create_order() -> tuple[dict[str, str], int]:
    """Store an order and its job: the session commits both, or neither."""
    with Session(engine, expire_on_commit=False) as session, session.begin():
        order = Order(item=request.args["item"])
        session.add(order)
        session.flush()  # so that the order has its id
        job = confirm.using(session).enqueue(order.id)
    return {"order": str(order.id), "job": job.id}, 202


@api.get("/jobs/<job_id>")
def read_job(job_id: str) -> tuple[dict[str, str | None], int]:
    """Say how far a job is."""
    try:
        job = jobs.client.job(job_id)
    except JobNotFound as error:
        return {"error": str(error)}, 404
    return {"state": job.state, "result": job.result}, 200


jobs.migrate()
Base.metadata.create_all(engine)

if __name__ == "__main__":
    with Worker(jobs):  # in a thread; Ctrl-C ends both
        api.run(port=int(os.environ.get("PORT", "5000")))
