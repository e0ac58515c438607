"""What tasks write becomes whole lines, marked where several write."""

from hypothesis import given
from hypothesis import strategies as st

from sparrow_py.executors.output_lines import (
    LINE_CHARS_MAX,
    MARK_NAME_CHARS_MAX,
    Backlog,
    LineAssembler,
    Screen,
    name_in_mark,
)


def fed(pieces: list[bytes], *, marked: bool = False) -> list[str]:
    """What is shown after each piece, and at the end."""
    lines = LineAssembler()
    return [*(lines.feed(piece, marked=marked) for piece in pieces), lines.finish()]


def test_lines_are_shown_whole() -> None:
    assert fed([b"on", b"e\ntw", b"o\n", b"three"]) == ["", "one\n", "two\n", "", "three"]


def test_characters_that_come_in_pieces_are_whole_and_what_is_none_is_escaped() -> None:
    smile = "😀\n".encode()
    assert fed([smile[:2], smile[2:]]) == ["", "😀\n", ""]
    assert fed([b"\xff\xfe\n", smile[:3]]) == ["\\xff\\xfe\n", "", "\\xf0\\x9f\\x98"]


def test_after_the_end_of_a_line_nothing_of_it_is_left() -> None:
    lines = LineAssembler()
    assert (lines.feed(b"\xc3", marked=False), lines.finish()) == ("", "\\xc3")
    assert lines.feed(b"\xa4\n", marked=False) == "\\xa4\n"


def test_a_long_line_is_shown_in_pieces_and_not_kept() -> None:
    lines = LineAssembler()
    piece = b"x" * (LINE_CHARS_MAX // 2 + 1)
    assert lines.feed(piece, marked=True) == ""
    assert len(lines.feed(piece, marked=True)) == 2 * len(piece)
    assert lines.finish() == ""


def test_a_progress_bar_moves_unmarked_and_shows_its_end_marked() -> None:
    bar = [b"\r 10%", b"\r 50%", b"\r100%\n"]
    assert fed(bar) == ["\r", " 10%\r", " 50%\r100%\n", ""]
    shown = fed(bar, marked=True)
    assert shown[:2] == ["", ""]
    assert Screen().show("bar", shown[2], "[f 0] ") == "[f 0] 100%\n"


def test_a_marked_bar_without_end_takes_no_memory() -> None:
    lines = LineAssembler()
    for _ in range(10):
        assert lines.feed(b"\r" + b"x" * 1000, marked=True) == ""
    assert lines.feed(b"\r", marked=True) == ""
    assert lines.feed(b"\n", marked=True) == "x" * 1000 + "\r\n"


def test_each_line_has_its_mark() -> None:
    screen = Screen()
    assert screen.show("a", "one\ntwo\n", "[f 0] ") == "[f 0] one\n[f 0] two\n"
    assert screen.show("a", "\n", "[f 0] ") == "[f 0] \n"
    assert screen.show("a", "dos\r\n", "[f 0] ") == "[f 0] dos\n"
    assert screen.show("a", "", "[f 0] ") == ""
    assert screen.show("a", "plain\r\n", "") == "plain\r\n"


def test_no_two_share_a_line() -> None:
    screen = Screen()
    assert screen.show("a", "begun", "[a 0] ") == "[a 0] begun"
    assert screen.show("a", " goes on", "[a 0] ") == " goes on"
    assert screen.end_line("b") == ""
    assert screen.show("b", "other\n", "[b 0] ") == "\n[b 0] other\n"
    assert screen.show("a", " again", "[a 0] ") == "[a 0]  again"
    assert (screen.end_line("a"), screen.end_line("a")) == ("\n", "")


def test_only_the_piece_that_goes_on_has_no_mark() -> None:
    screen = Screen()
    screen.show("a", "begun", "[a 0] ")
    assert screen.show("a", " ended\nnext\n", "[a 0] ") == " ended\n[a 0] next\n"


def test_names_in_marks_are_short_and_on_one_line() -> None:
    assert name_in_mark("x" * MARK_NAME_CHARS_MAX) == "x" * MARK_NAME_CHARS_MAX
    assert name_in_mark("\n" * 100) == ("\\n" * MARK_NAME_CHARS_MAX)[: MARK_NAME_CHARS_MAX - 1] + "…"


def test_a_backlog_is_shown_in_pieces_that_count_their_marks() -> None:
    backlog = Backlog()
    backlog.put("a\nbb\n\nrest", "[f 0] ")
    assert [backlog.take(9), backlog.take(1), backlog.take(100), backlog.take(9)] == ["a\nbb\n", "\n", "rest", ""]
    assert not backlog


@given(st.text("ab\n", max_size=50), st.integers(1, 20))
def test_the_pieces_of_a_backlog_are_its_text(text: str, chars_max: int) -> None:
    backlog, pieces = Backlog(), []
    backlog.put(text, "> ")
    while backlog:
        pieces.append(backlog.take(chars_max))
    assert "".join(pieces) == text
    assert all(piece.endswith("\n") for piece in pieces[:-1])


@given(st.lists(st.binary(max_size=40)))
def test_nothing_is_lost_or_made_up(pieces: list[bytes]) -> None:
    assert "".join(fed(pieces)) == b"".join(pieces).decode("utf-8", "backslashreplace")


@given(st.lists(st.tuples(st.sampled_from("ab"), st.text("xy\r\n", max_size=5)), max_size=20))
def test_each_line_is_of_one_source(writes: list[tuple[str, str]]) -> None:
    assemblers, screen, shown = {"a": LineAssembler(), "b": LineAssembler()}, Screen(), ""
    for source, text in writes:
        shown += screen.show(source, assemblers[source].feed(text.encode(), marked=True), f"[{source}]")
    for source, lines in assemblers.items():
        shown += screen.show(source, lines.finish(), f"[{source}]") + screen.end_line(source)
    for source in assemblers:
        written = "".join(text for writer, text in writes if writer == source).split("\n")
        ends = [line.removesuffix("\r").rpartition("\r")[2] for line in written]
        mine = [line.removeprefix(f"[{source}]") for line in shown.split("\n") if line.startswith(f"[{source}]")]
        assert mine[: len(ends) - 1] == ends[:-1]
    assert shown == "" or shown.endswith("\n")
