"""A FastAPI application: an order and its job are stored in one transaction, and a worker runs in the same process.

Start it with `uvicorn fastapi_app:api`, then order something:

    curl -X POST 'http://127.0.0.1:8000/orders?item=tea'
"""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI, HTTPException
from sqlalchemy.ext.asyncio import async_sessionmaker, create_async_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from stagepost import App, Worker
from stagepost.errors import JobNotFound

URL = os.environ.get("DATABASE_URL", "sqlite:///shop.db")
DRIVERS = {"sqlite": "sqlite+aiosqlite", "postgresql": "postgresql+psycopg"}
scheme, _, place = URL.partition(":")

jobs = App(URL, auto_migrate=True)  # makes Stagepost's tables; in production, run `stagepost migrate` instead
engine = create_async_engine(f"{DRIVERS[scheme]}:{place}", pool_pre_ping=True)
Session = async_sessionmaker(engine, expire_on_commit=False)


class Base(DeclarativeBase):
    """Your models."""


class Order(Base):
    """An order of the shop."""

    __tablename__ = "shop_orders"
    id: Mapped[int] = mapped_column(primary_key=True)
    item: Mapped[str]
    is_confirmed: Mapped[bool] = mapped_column(default=False)


@jobs.task
async def confirm(order_id: int) -> str:
    """Confirm the order that was committed with this job. A second run changes nothing."""
    async with Session.begin() as session:
        order = await session.get_one(Order, order_id)
        order.is_confirmed = True
        return f"confirmed: {order.item}"


@asynccontextmanager
async def lifespan(_api: FastAPI) -> AsyncIterator[None]:
    """Run a worker for as long as the application runs."""
    async with engine.begin() as connection:
        await connection.run_sync(Base.metadata.create_all)
    async with Worker(jobs):
        yield


api = FastAPI(lifespan=lifespan)


@api.post("/orders", status_code=202)
async def create_order(item: str) -> dict[str, str]:
    """Store an order and its job: the session commits both, or neither."""
    async with Session.begin() as session:
        order = Order(item=item)
        session.add(order)
        await session.flush()  # so that the order has its id
        job = await confirm.using(session).enqueue_async(order.id)
    return {"order": str(order.id), "job": job.id}


@api.get("/jobs/{job_id}")
async def read_job(job_id: str) -> dict[str, str | None]:
    """Say how far a job is."""
    try:
        job = await jobs.client.job_async(job_id)
    except JobNotFound as error:
        raise HTTPException(404, str(error)) from error
    return {"state": job.state, "result": job.result}
