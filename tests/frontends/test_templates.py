"""Templates of commands: what placeholders stand for, and that values stay values."""

import posixpath
import re
import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st

from frontends.command.tasks import CommandTask
from frontends.command.templates import Filled, Template, directory, file_name, without_extension
from sparrow_py.errors import InvalidRequest

values = st.text(st.characters(blacklist_characters="\0", blacklist_categories=["Cs"]))


def filled(*argv: str, values: tuple[str, ...] = ("dir/a.tar.gz",), number: int = 7) -> list[str]:
    return Template.of_arguments(argv, len(values)).filled(number, values).argv


class TestParts:
    @pytest.mark.parametrize(
        ("value", "stem", "name", "parent"),
        [
            ("dir/a.tar.gz", "dir/a.tar", "a.tar.gz", "dir"),
            ("a", "a", "a", "."),
            ("/a", "/a", "a", "/"),
            ("/", "/", "", "/"),
            ("", "", "", "."),
            ("d.x/a", "d.x/a", "a", "d.x"),
            ("d//a.", "d//a.", "a.", "d"),
            ("d/e/", "d/e/", "", "d"),
            ("d/.rc", "d/", ".rc", "d"),
            ("a\nb.c/d.e", "a\nb.c/d", "d.e", "a\nb.c"),
        ],
    )
    def test_of_a_path(self, value: str, stem: str, name: str, parent: str) -> None:
        assert (without_extension(value), file_name(value), directory(value)) == (stem, name, parent)

    @given(values)
    def test_directory_and_file_name_are_those_of_the_path(self, value: str) -> None:
        assert file_name(value) == posixpath.basename(value)
        if not value.endswith("/"):
            assert directory(value) == (posixpath.dirname(value) or ".")
        assert value.startswith(without_extension(value))


class TestArguments:
    def test_each_placeholder(self) -> None:
        assert filled("{}", "{.}", "{/}", "{//}", "{/.}", "{#}") == [
            "dir/a.tar.gz", "dir/a.tar", "a.tar.gz", "dir", "a.tar", "7",
        ]  # fmt: skip

    def test_within_an_argument(self) -> None:
        assert filled("<{}{#}>", "x{.}.jpg") == ["<dir/a.tar.gz7>", "xdir/a.tar.jpg"]

    def test_of_one_source(self) -> None:
        assert filled("{2}{1.}", "{-1/}", "{-2}", values=("a.b", "c/d")) == ["c/da", "d", "a.b"]

    def test_of_all_sources_each_is_an_argument_where_they_are_nothing_else(self) -> None:
        assert filled("{}", "{.}!", values=("a b.c", "d")) == ["a b.c", "d", "a b d!"]

    @pytest.mark.parametrize(("argv", "appended"), [(["echo"], True), (["echo", "{#}"], False), (["$x{}"], False)])
    def test_the_value_is_appended_to_a_command_without_placeholders(self, argv: list[str], appended: bool) -> None:
        assert len(filled(*argv)) == len(argv) + appended

    @pytest.mark.parametrize(
        "text", ["${1}", "${#}", "${.}", "{}}"[1:], "{a}", "{1,2}", "{ }", "{..}", "{1#}", "{%1}", "{= $_ =}", "", "{"]
    )
    def test_what_is_no_placeholder_stays(self, text: str) -> None:
        assert filled(text, "{}") == [text, "dir/a.tar.gz"]

    @pytest.mark.parametrize(
        ("text", "sources", "allowed"),
        [("{2}", 1, "1 or -1"), ("a{3.}b", 2, "1 to 2, or -1 to -2"), ("{0}", 1, "1 or -1"), ("{-3}", 2, "1 to 2")],
    )
    def test_a_source_that_there_is_not(self, text: str, sources: int, allowed: str) -> None:
        with pytest.raises(
            InvalidRequest, match=f"placeholder: {re.escape(repr(text.strip('ab')))} .* positions {allowed}"
        ):
            Template.of_arguments([text], sources)

    @given(values, values)
    def test_values_are_never_looked_into(self, first: str, second: str) -> None:
        assert filled("{1}-{2}", "{2}", "{}", values=(first, second)) == [f"{first}-{second}", second, first, second]


class TestSlot:
    def test_the_place_of_its_number(self) -> None:
        template = Template.of_arguments(["a{%}b{%}", "{%}", "{}"], 1)
        made = template.filled(1, ["{%}"])
        assert made == Filled(["ab", "", "{%}"], [(0, 1), (0, 2), (1, 0)])
        assert CommandTask(made.argv, slot_at=made.slot_at).in_place("12").argv == ["a12b12", "12", "{%}"]

    @pytest.mark.parametrize("slot_at", [[(1, 0)], [(0, 2)], [(0, -1)], [(0, 1), (0, 0)]])
    def test_a_place_that_there_is_not_is_refused(self, slot_at: list[tuple[int, int]]) -> None:
        with pytest.raises(InvalidRequest, match="slot_at"):
            CommandTask(["a"], slot_at=slot_at).validate()


class TestScript:
    def test_values_are_parameters(self) -> None:
        made = Template.of_script(["sort", "{} | head >", "{.}.{2}{#}", "{}"], 2).filled(3, ["a.b", "c"])
        script = 'sort "${1}" "${2}" | head > "${3}" "${4}"."${2}""${5}" "${1}" "${2}"'
        assert made.argv == ["sh", "-c", script, "sh", "a.b", "c", "a", "c", "3"]

    def test_the_value_is_appended(self) -> None:
        assert Template.of_script(["a;", "b"], 1).filled(1, ["v"]).argv == ["sh", "-c", 'a; b "${1}"', "sh", "v"]
        assert Template.of_script(["a;", "b"], 1, append=False).filled(1, ["v"]).argv == ["sh", "-c", "a; b", "sh"]

    @pytest.mark.parametrize("template", ["printf %s {}", 'printf %s "{}"', "printf %s x{}", "printf %s '{}'"])
    def test_no_value_becomes_a_command(self, template: str, tmp_path_factory: pytest.TempPathFactory) -> None:
        where = tmp_path_factory.mktemp("script")
        for value in (
            "; touch x",
            "$(touch x)",
            "`touch x`",
            "'; touch x; '",
            '"; touch x; "',
            "\ntouch x\n",
            "&touch x",
        ):
            argv = Template.of_script([template], 1).filled(1, [value]).argv
            done = subprocess.run(argv, cwd=where, capture_output=True, text=True, check=True)
            assert list(where.iterdir()) == []
            if template == "printf %s {}":
                assert done.stdout == value
