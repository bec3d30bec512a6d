"""How many jobs of a task run at once, over all workers: all together, or for each key.

It prints:

    6 exports, at most 2 at once
    ada: 3 syncs, at most 1 at once
    bob: 3 syncs, at most 1 at once
"""

import asyncio
from collections import Counter

from stagepost import App, Worker

app = App("sqlite:///:memory:")
inside: Counter[str] = Counter()
most: Counter[str] = Counter()
total: Counter[str] = Counter()


async def visit(name: str) -> None:
    """Count who is here at the same time."""
    total[name] += 1
    inside[name] += 1
    most[name] = max(most[name], inside[name])
    await asyncio.sleep(0.01)
    inside[name] -= 1


@app.task(max_running=2)
async def export(number: int) -> int:
    """At most two at once."""
    await visit("exports")
    return number


@app.task(max_running=1, limit_by=lambda user, *_: user)
async def sync(user: str, number: int) -> int:
    """At most one at once for each user."""
    await visit(user)
    return number


app.enqueue_many([export.job(number) for number in range(6)])
app.enqueue_many([sync.job(user, number) for user in ("ada", "bob") for number in range(3)])
asyncio.run(Worker(app).run(until_idle=True))

print(f"{total['exports']} exports, at most {most['exports']} at once")
for user in ("ada", "bob"):
    print(f"{user}: {total[user]} syncs, at most {most[user]} at once")
