"""`stagepost batches` and `stagepost gates`."""

from __future__ import annotations

import json

import pytest

from stagepost import App, Batch
from stagepost.client.batches import BatchHandle
from stagepost.store.batches import find
from stagepost.store.counting import batch_scope
from tests.acceptance.cli.command_line import CommandLine


def upload(
    shop: CommandLine, key: str = "upload:42", *, mails: int = 3, refused: int = 0, seals: bool = True, **options: str
) -> None:
    """Add items of the project's tasks to a batch, as a separate producer."""
    app = App(shop.url)
    app.task(name="shop.mail")(mail)
    app.task(name="shop.refuse")(refuse)
    batch = app.batch(key, gate="dataset:7", **options)  # type: ignore[arg-type]
    batch.add(app.registry.get("shop.mail").item(f"m{n}", f"to {n}") for n in range(mails))  # type: ignore[attr-defined]
    batch.add(app.registry.get("shop.refuse").item(f"r{n}", n) for n in range(refused))  # type: ignore[attr-defined]
    if seals:
        batch.seal()
    app.close()


def mail(to: str, copies: int = 1) -> str:
    raise NotImplementedError  # the project's own runs


def refuse(order: int) -> None:
    raise NotImplementedError


def test_a_batch_is_shown_with_a_bar(shop_anywhere: CommandLine) -> None:
    shop = shop_anywhere
    upload(shop, mails=3, refused=1)

    before = shop.says("batches", "show", "upload:42")
    assert "upload:42  ░░░░░░░░░░░░░░░░░░░░   0.0%  sealed: 0 of 4 done" in before
    shop.work()
    after = shop.says("batches", "show", "upload:42")

    assert "████████████████████ 100.0%  completed_with_errors: 4 of 4 done, 1 failed" in after
    assert "dataset:7" in after
    document = shop.json("batches", "show", "upload:42")
    assert (document["state"], document["outcome"]) == ("done", "completed_with_errors")
    assert (document["items"]["completed"], document["items"]["failed"]) == (3, 1)
    assert (document["fraction"], document["eta_seconds"]) == (1.0, None)


def test_batches_are_listed_by_pages_and_states(shop: CommandLine) -> None:
    for number in range(3):
        upload(shop, f"upload:{number}", seals=number == 0)
    shop.work()

    first = shop.json("batches", "list", "--limit", "2")
    rest = shop.json("batches", "list", "--limit", "2", "--before", first["next_before"])

    assert [batch["key"] for batch in first["batches"] + rest["batches"]] == ["upload:2", "upload:1", "upload:0"]
    assert [batch["key"] for batch in shop.json("batches", "list", "--state", "done")["batches"]] == ["upload:0"]
    assert "██████████" in shop.says("batches", "list")
    assert shop.says("batches", "list", "--state", "sealed") == "There are no such batches.\n"


def test_watching_ends_with_the_batch_and_reports_its_outcome(shop: CommandLine) -> None:
    upload(shop)
    shop.work()
    assert "completed: 3 of 3 done" in shop.says("batches", "watch", "upload:42")

    upload(shop, "upload:43", refused=1)
    shop.work()
    result = shop.run("batches", "watch", "upload:43", "--json")
    assert result.exit_code == 1
    assert json.loads(result.stdout)["outcome"] == "completed_with_errors"


def test_watching_shows_the_final_counts_of_a_batch_that_ends_between_two_reads(
    shop: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    upload(shop)
    read = BatchHandle.stored

    def end_and_read(handle: BatchHandle) -> Batch:
        handle.cancel()
        return read(handle)

    monkeypatch.setattr(BatchHandle, "stored", end_and_read)

    assert "100.0%  cancelled: 3 of 3 done" in shop.run("batches", "watch", "upload:42").stdout


def test_failed_items_are_grouped_listed_and_retried(shop: CommandLine) -> None:
    upload(shop, refused=2)
    shop.work()

    [group] = shop.json("batches", "failed", "upload:42")["groups"]
    assert (group["items"], group["reason"]) == (2, "Permanent: order # has no address")
    assert "order # has no address" in shop.says("batches", "failed", "upload:42")
    listed = shop.json("batches", "items", "upload:42", "--state", "failed")["items"]
    assert {item["key"] for item in listed} == {"r0", "r1"}
    assert shop.says("batches", "retry", "upload:42", "r0") == "One item is queued again.\n"
    message = shop.fails(2, "batches", "retry", "upload:42", "--all")
    assert "Queue the item that failed in batch upload:42 again? Without a terminal, confirm with --yes" in message
    assert shop.json("batches", "retry", "upload:42", "--all", "--yes") == {"done": 1, "refused": 0}
    assert shop.json("batches", "show", "upload:42")["items"]["queued"] == 2


def test_waiving_needs_a_reason_and_lets_a_held_batch_end(shop: CommandLine) -> None:
    upload(shop, refused=2, on_failed="hold")
    shop.work()
    assert shop.json("gates", "show", "dataset:7")["is_open"] is False

    assert "Give a reason with --why TEXT" in shop.fails(2, "batches", "waive", "upload:42", "--all")
    said = shop.says("batches", "waive", "upload:42", "--all", "--why", "test tones", "--yes")

    assert said == "2 items are waived.\n"
    assert shop.json("batches", "show", "upload:42")["outcome"] == "completed"
    assert shop.json("gates", "show", "dataset:7")["is_open"] is True


def test_items_that_did_not_fail_are_refused(shop: CommandLine) -> None:
    upload(shop)
    shop.work()

    result = shop.run("batches", "retry", "upload:42", "m0", "nobody")

    assert (result.exit_code, result.stdout) == (1, "0 items are queued again.\n")
    assert "2 items of those named did not fail" in result.stderr
    assert "Select items by their keys, or all failed items with --all" in shop.fails(
        2, "batches", "retry", "upload:42"
    )
    assert "Select items by their keys, or all failed items with --all" in shop.fails(
        2, "batches", "waive", "upload:42", "m0", "--all", "--why", "x"
    )


def test_items_are_listed_by_pages_and_exported(shop: CommandLine) -> None:
    upload(shop)
    shop.work()

    first = shop.json("batches", "items", "upload:42", "--limit", "2")
    rest = shop.json("batches", "items", "upload:42", "--limit", "2", "--before", first["next_before"])
    said = shop.says("batches", "items", "upload:42", "--export", "items.ndjson")

    assert sorted(item["result"] for item in first["items"] + rest["items"]) == [f"1 to to {n}" for n in range(3)]
    assert said == "3 items written to items.ndjson.\n"
    assert len((shop.folder / "items.ndjson").read_text().splitlines()) == 3
    assert "1 to to 1" in shop.says("batches", "items", "upload:42")


def test_cancelling_asks_first(shop: CommandLine) -> None:
    upload(shop)

    message = shop.fails(2, "batches", "cancel", "upload:42")
    assert "Cancel batch upload:42 (0 of 3 done)? Without a terminal, confirm with --yes" in message
    assert shop.says("batches", "cancel", "upload:42", "--yes") == "Batch upload:42 is cancelled.\n"
    assert shop.says("batches", "cancel", "upload:42") == "Batch upload:42 is cancelled.\n"
    assert shop.json("batches", "show", "upload:42")["items"]["cancelled"] == 3


def test_a_wrong_count_is_repaired(shop: CommandLine) -> None:
    """F67."""
    upload(shop)
    batch = shop.store.run(find("upload:42"))
    assert batch is not None
    assert shop.says("batches", "recount", "upload:42") == "The counts are right.\n"
    with shop.store.transaction() as connection:
        connection.execute("delete from stagepost_move where scope = :scope", {"scope": batch_scope(batch.id)})
        connection.execute("delete from stagepost_count where scope = :scope", {"scope": batch_scope(batch.id)})

    assert shop.json("batches", "recount", "upload:42") == {"repaired": [{"class": "active", "counted": 0, "found": 3}]}
    assert shop.says("batches", "recount", "upload:42") == "The counts are right.\n"


def test_an_unknown_batch_or_gate_is_a_clear_error(shop: CommandLine) -> None:
    for command in ("show", "watch", "failed", "items", "recount"):
        assert "batch 'nobody' does not exist" in shop.fails(1, "batches", command, "nobody").lower()
    assert "Gate 'nobody' does not exist" in shop.fails(1, "gates", "show", "nobody")


@pytest.mark.parametrize("app", ["shop", None], ids=["with the app", "without it"])
def test_gates_are_listed_and_shown(shop: CommandLine, app: str | None) -> None:
    upload(shop)

    listed = shop.run("gates", "list", "--json", STAGEPOST_APP=app)
    assert json.loads(listed.stdout)["gates"] == [
        {"name": "dataset:7", "is_open": False, "unfinished": 1, "openings": 0, "opened_at": None}
    ]
    said = shop.says("gates", "show", "dataset:7")
    assert "Gate dataset:7 is closed; it has never opened." in said
    assert "0 of 3 done" in said
    shop.work()
    assert shop.says("gates", "show", "dataset:7") == "Gate dataset:7 is open; it has opened once.\n"
    assert "open" in shop.says("gates", "list")


def test_discarding_skips_failed_items_that_hold_their_batch_and_says_so(shop_anywhere: CommandLine) -> None:
    shop = shop_anywhere
    upload(shop, mails=1, refused=2, on_failed="hold")
    alone = shop.enqueue("refuse", "7")
    shop.work()

    result = shop.run("dead", "discard", "--all", "--yes")

    assert result.exit_code == 1
    assert result.stdout == "One dead letter is deleted.\n"
    assert "Skipped 2 dead letters. Batch 'upload:42' is not done." in result.stderr
    assert "`stagepost batches waive`" in result.stderr
    assert "there is no such job" in shop.fails(1, "jobs", "show", alone)
    assert shop.json("batches", "show", "upload:42")["items"]["failed"] == 2
    assert not shop.json("gates", "show", "dataset:7")["is_open"]

    shop.says("batches", "waive", "upload:42", "--all", "--why", "test tones", "--yes")
    assert shop.json("gates", "show", "dataset:7")["is_open"]


def test_discarding_from_a_done_batch_changes_none_of_its_numbers(shop: CommandLine) -> None:
    upload(shop, mails=1, refused=2)
    shop.work()
    before = shop.json("batches", "show", "upload:42")

    assert shop.says("dead", "discard", "--all", "--yes") == "2 dead letters are deleted.\n"

    assert shop.says("batches", "recount", "upload:42") == "The counts are right.\n"
    after = shop.json("batches", "show", "upload:42")
    assert (after["items"], after["outcome"]) == (before["items"], before["outcome"])
