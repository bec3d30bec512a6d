"""Reasons keep what alike errors share and drop what tells them apart."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stagepost.model.reason import REASON_CHARACTERS, reason_of


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        ("TimeoutError: no answer in 30.5 s", "TimeoutError: no answer in # s"),
        ("HTTP 503 from 10.0.0.7:8080", "HTTP # from #"),
        ("no user 01a1e0fa-be28-71fa-be89-ce9b15eaa2f1", "no user <id>"),
        ("no user 01A1E0FABE2871FABE89CE9B15EAA2F1", "no user <id>"),
        ("<Job object at 0x7fbb24635440>", "<Job object at <hex>>"),
        ("commit 9fceb02d0ae598e95dc970b74767f19372d61af8 is gone", "commit <hex> is gone"),
        ("the deadbeef facade", "the deadbeef facade"),
        ("KeyError: 'user_123'", "KeyError: 'user_#'"),
        ("2026-11-15T20:15:00: late", "#-#-#T#: late"),
        ("\n\n  two   words \nand more", "two words"),
        ("", "no message"),
        (None, "no message"),
    ],
)
def test_ids_and_numbers_are_blanked(error: str | None, reason: str) -> None:
    assert reason_of(error) == reason


@given(st.text(max_size=400))
def test_a_reason_is_one_short_line_that_is_never_empty(error: str) -> None:
    reason = reason_of(error)

    assert 1 <= len(reason) <= REASON_CHARACTERS
    assert len(reason.splitlines()) == 1


def test_a_huge_line_takes_no_time() -> None:
    assert reason_of("a0" * 5_000_000).startswith("<hex>")
