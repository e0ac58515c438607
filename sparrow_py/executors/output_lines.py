"""The output of tasks is cut into whole lines, and each line is marked. All I/O is in `output_forwarding`."""

from __future__ import annotations

import codecs

from sparrow_py.logs.printable import printable

LINE_CHARS_MAX = 1 << 16
"""A line that grows longer without an end is shown in pieces: no more of a stream is held back."""
MARK_NAME_CHARS_MAX = 60
"""Most characters of a name in a mark, since the mark stands before each line."""


def name_in_mark(name: str) -> str:
    """The name as marks show it: on one line, whatever is in it, and shortened if it is long."""
    shown = printable(name)
    return shown if len(shown) <= MARK_NAME_CHARS_MAX else shown[: MARK_NAME_CHARS_MAX - 1] + "…"


class LineAssembler:
    """Turns the bytes of one stream into whole lines of text, whatever the pieces in which the bytes come.

    Bytes that are not UTF-8 are shown as escapes.
    """

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("backslashreplace")
        self._begun = ""

    def feed(self, data: bytes, *, marked: bool) -> str:
        """The text that can be shown now.

        A progress bar begins its line anew by a carriage return. An unmarked one is shown as it moves, a marked one
        once its line has ended.
        """
        text = self._begun + self._decoder.decode(data)
        ends = text.rfind("\n") + 1
        if not marked:
            ends = max(ends, text.rfind("\r") + 1)
        ready, begun = text[:ends], text[ends:]
        if marked and "\r" in begun:
            begun = _last_state(begun[:-1]) + begun[-1]  # A final one may be half of "\r\n".
        if len(begun) > LINE_CHARS_MAX:
            ready, begun = ready + begun, ""
        self._begun = begun
        return ready

    def finish(self) -> str:
        """The text that was held back; the stream has ended."""
        rest, self._begun = self._begun + self._decoder.decode(b"", final=True), ""
        self._decoder.reset()
        return rest


class Backlog:
    """Text that is to be shown, each line after the mark, in pieces of about the same length."""

    def __init__(self) -> None:
        self._text = ""
        self._shown = 0
        self.mark = ""

    def __bool__(self) -> bool:
        return self._shown < len(self._text)

    def put(self, text: str, mark: str) -> None:
        """Show this text next. All text before it must have been shown."""
        self._text, self._shown, self.mark = text, 0, mark

    def take(self, chars_max: int) -> str:
        """The next whole lines, one at least, which with their marks are not much longer than `chars_max`."""
        text, begin, end, chars = self._text, self._shown, self._shown, 0
        while end < len(text) and chars < chars_max:
            line_end = text.find("\n", end) + 1 or len(text)
            chars += len(self.mark) + line_end - end
            end = line_end
        self._shown = end
        piece = text[begin:end]
        if not self:
            self._text, self._shown = "", 0
        return piece


class Screen:
    """One of the program's streams, to which several sources write: no two of them share a line."""

    def __init__(self) -> None:
        self._unfinished: object = None
        """The source of the last line, if the line has no end yet."""

    def show(self, source: object, text: str, mark: str) -> str:
        """The text to write so that this text of the source is shown, with the mark before each line."""
        if not text:
            return ""
        goes_on = self._unfinished is source
        before = "" if goes_on or self._unfinished is None else "\n"
        self._unfinished = None if text.endswith("\n") else source
        return before + (_marked(text, mark, goes_on) if mark else text)

    def end_line(self, source: object) -> str:
        """The text to write so that the source's last line has an end."""
        if source is None or self._unfinished is not source:
            return ""
        self._unfinished = None
        return "\n"


def _marked(text: str, mark: str, goes_on: bool) -> str:
    """The text with the mark before each line; not before the first line if it `goes_on` from earlier text."""
    lines = text.split("\n")
    last = lines.pop()
    shown = [mark + _last_state(line.removesuffix("\r")) for line in lines]
    if last:
        shown.append(mark + last)
    else:
        shown.append("")
    if goes_on:
        shown[0] = shown[0].removeprefix(mark)
    return "\n".join(shown)


def _last_state(line: str) -> str:
    """The text that a terminal would show of a line that was begun anew several times by carriage returns."""
    return line.rpartition("\r")[2]
