"""Jobs at due times: intervals and cron, fired once per due time whatever the number of workers.

It prints:

    weekday-report: 0 6 * * 1-5
    tick: every 1s
    ticked
"""

import asyncio

from stagepost import App, Worker

app = App("sqlite:///:memory:")
ticked = asyncio.Event()


@app.task
def report() -> None:
    """Would run on weekdays at six in the morning, in Berlin, summer and winter."""


@app.task
async def tick() -> None:
    """Runs every second."""
    ticked.set()


app.schedule("weekday-report", "0 6 * * 1-5", report.job(), time_zone="Europe/Berlin")
app.schedule("tick", "every 1s", tick.job())


async def main() -> None:
    """Work until the schedule has fired."""
    for schedule in app.declared_schedules.values():
        print(f"{schedule.name}: {schedule.rule}")
    async with Worker(app):
        await asyncio.wait_for(ticked.wait(), timeout=60)
    print("ticked")


asyncio.run(main())
