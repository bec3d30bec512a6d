"""How far a job is, seen from outside while it runs.

It prints:

    waiting: None
    running: Pages(read=3, total=300)
    ended: None, with 300 pages
"""

import asyncio
from dataclasses import dataclass

from stagepost import App, JobContext, Worker

app = App("sqlite:///stagepost.db")
seen = asyncio.Event()


@dataclass
class Pages:
    """What the task reports."""

    read: int
    total: int


@app.task(progress=Pages)
async def read_book(job: JobContext, total: int) -> int:
    """Report after every page; the newest is written about once a second, whoever looks."""
    for read in range(1, total + 1):
        job.report(Pages(read, total))
        if read == 3:
            await seen.wait()  # a page that takes long
    return total


async def main() -> None:
    """Run a worker, and look at the job from outside."""
    job = await read_book.enqueue_async(300)
    print("waiting:", await job.progress_async())
    worker = asyncio.create_task(Worker(app).run(until_idle=True))
    while (progress := await job.progress_async()) is None:  # noqa: ASYNC110 - as a page that shows it would
        await asyncio.sleep(0.1)
    print("running:", progress)
    seen.set()
    await worker
    print(f"ended: {await job.progress_async()}, with {await job.result_async(timeout=5)} pages")


if __name__ == "__main__":
    asyncio.run(main())
