"""Texts of workflows: which language one is in, and what it becomes over given tables."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from frontends.workflow.ir.dag import Dag
from frontends.workflow.ir.reading import read
from frontends.workflow.ir.types import Schema
from sparrow_py.errors import InvalidRequest

LANGUAGES = ("hive", "beer", "gas", "lindi", "ir")
SUFFIXES = {
    ".hive": "hive", ".hql": "hive", ".sql": "hive", ".beer": "beer", ".gas": "gas", ".py": "lindi", ".lindi": "lindi",
    ".ir": "ir",
}  # fmt: skip
TEXT_BYTES_MAX = 1 << 20


@dataclass(frozen=True, slots=True)
class Source:
    """A workflow's text. file: what errors call it. strict: of HiveQL, without the thesis's forms."""

    language: str
    text: str
    file: str
    strict: bool = False

    def dag(self, schemas: Mapping[str, Schema]) -> Dag:
        """The workflow over tables of these columns; `InvalidWorkflow` if it cannot be."""
        if self.language == "ir":
            return read(self.text, self.file)
        parse = importlib.import_module(f"frontends.workflow.languages.{self.language}").parse
        made: Dag = parse(self.text, schemas, self.file, **({"strict": True} if self.strict else {}))
        return made


def source_of_file(path: str | Path, language: str | None = None, *, strict: bool = False) -> Source:
    """The workflow in this file, in the language or in that of its suffix; `InvalidRequest` if neither says one."""
    path = Path(path)
    if language is None:
        language = SUFFIXES.get(path.suffix.lower())
        if language is None:
            raise InvalidRequest(
                "file", str(path), f"a suffix that says the language ({', '.join(SUFFIXES)}), or --language"
            )
    if strict and language != "hive":
        raise InvalidRequest("strict_hive", strict, "for HiveQL only")
    try:
        with path.open("rb") as file:
            content = file.read(TEXT_BYTES_MAX + 1)
        if len(content) > TEXT_BYTES_MAX:
            raise InvalidRequest("file", str(path), f"at most {TEXT_BYTES_MAX:,} bytes")
        return Source(language, content.decode(), str(path), strict)
    except OSError as error:
        raise InvalidRequest("file", str(path), f"a file that can be read ({error.strerror})") from None
    except UnicodeDecodeError:
        raise InvalidRequest("file", str(path), "UTF-8") from None
