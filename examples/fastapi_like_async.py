"""An async web application: a route that enqueues in its own transaction, a worker on the same loop.

The two functions below are what a route and the lifespan of a FastAPI or Starlette application would be.

It prints:

    202 accepted
    confirmed: tea
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from stagepost import App, JobHandle, Worker

app = App("sqlite:///shop.db")


@app.task
async def confirm(item: str) -> str:
    """Runs on the worker's loop, beside other jobs."""
    await asyncio.sleep(0)
    return f"confirmed: {item}"


@asynccontextmanager
async def lifespan() -> AsyncIterator[None]:
    """Run a worker as long as the application runs; `stagepost worker` does it in a process of its own."""
    worker = Worker(app)
    running = asyncio.create_task(worker.run())
    yield
    worker.stop()  # ends what is running, gives the rest back
    await running


async def post_order(item: str) -> JobHandle[str]:
    """Store the order and ask for its job; both are there once the block has ended."""
    async with app.transaction() as tx:
        await tx.execute("create table if not exists async_orders (item text)")
        await tx.execute("insert into async_orders values (?)", (item,))
        job = await confirm.using(tx).enqueue_async(item)
    print("202 accepted")
    return job


async def main() -> None:
    """Start the application, send it a request, wait for what the job gives."""
    async with lifespan():
        job = await post_order("tea")
        print(await job.result_async(timeout=60))


asyncio.run(main())
