"""Lines for COPY: what is special in them is written so that it comes back, and what rows share is not mixed up."""

from __future__ import annotations

from collections.abc import Iterator

from stagepost.database.copying import PIECE, pieces_of
from stagepost.database.statement import Row


def test_a_row_is_a_line_of_its_own_columns_and_the_shared_columns() -> None:
    shared = ("mail", 7, None)
    rows = [(("a", "{}", None), shared), (("b", "[]", "key"), shared), (("c", "1", None), ("other", -1, "x"))]

    assert "".join(pieces_of(rows)) == ("a\t{}\t\\N\tmail\t7\t\\N\nb\t[]\tkey\tmail\t7\t\\N\nc\t1\t\\N\tother\t-1\tx\n")


def test_characters_that_are_special_to_copy_are_escaped() -> None:
    rows = [(("\\N", "a\tb", "\\.", "c\nd\re", "\\\n"), ("f\\tg", "世界 🚚"))]

    assert "".join(pieces_of(rows)) == "\\\\N\ta\\tb\t\\\\.\tc\\nd\\re\t\\\\\\n\tf\\\\tg\t世界 🚚\n"


def test_no_rows_give_no_lines() -> None:
    assert "".join(pieces_of([])) == ""


def test_a_chunk_is_sent_before_the_rows_of_the_next_are_built() -> None:
    made = 0

    def rows() -> Iterator[Row]:
        nonlocal made
        for _ in range(100):
            made += 1
            yield ("x" * (PIECE // 10),), ()

    pieces = pieces_of(rows())
    first = next(pieces)

    assert made == 10
    assert PIECE <= len(first) < PIECE + PIECE // 10 + 10
    assert sum(piece.count("\n") for piece in [first, *pieces]) == 100
