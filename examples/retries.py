"""What happens when a handler raises: tried again, never tried again, put off, parked, started anew by hand.

It prints:

    fetched on attempt 3
    bad address: failed after 1 attempt
    no paper: dead_letter after 2 attempts
    printed on attempt 3
"""

import asyncio
from datetime import timedelta

from stagepost import App, JobContext, Permanent, Retryable, RetryPolicy, Worker

app = App("sqlite:///shop.db")
printer = {"paper": 0}


@app.task(retry=RetryPolicy(max_attempts=5, first_delay=timedelta(minutes=1)))
def fetch(job: JobContext) -> str:
    """Asks for another attempt at once; without `after`, the policy's delay doubles from a minute."""
    if job.attempt < 3:
        raise Retryable("the server is busy", after=0)
    return f"fetched on attempt {job.attempt}"


@app.task
def send(address: str) -> None:
    """Raises something that no later attempt can mend."""
    raise Permanent(f"no such address: {address}")


@app.task(retry=RetryPolicy(max_attempts=2, first_delay=timedelta(0), minimum_delay=timedelta(0)))
def print_letter(job: JobContext) -> str:
    """Raises whatever its code raises; I/O errors are tried again."""
    if not printer["paper"]:
        raise OSError("no paper")
    return f"printed on attempt {job.attempt}"


def work() -> None:
    """Run jobs until none is due."""
    asyncio.run(Worker(app).run(until_idle=True))


fetched, sent, printed = fetch.enqueue(), send.enqueue("nowhere"), print_letter.enqueue()
work()
print(fetched.result(timeout=5))
for name, job in (("bad address", sent), ("no paper", printed)):
    ended = app.client.job(job.id)
    print(f"{name}: {ended.state} after {ended.attempt} attempt{'s' * (ended.attempt > 1)}")

printer["paper"] = 100
app.client.retry(printed.id)  # or: stagepost dead retry
work()
print(printed.result(timeout=5))
