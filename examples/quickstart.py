"""One task, one job, one worker, in ten lines.

It prints:

    Hello, Ada!
"""

import asyncio

from stagepost import App, Worker

app = App("sqlite:///stagepost.db")


@app.task
def greet(name: str) -> str:
    return f"Hello, {name}!"


if __name__ == "__main__":
    job = greet.enqueue("Ada")  # stored, checked against the signature
    asyncio.run(Worker(app).run(until_idle=True))  # or: stagepost worker --app quickstart:app
    print(job.result(timeout=5))
