"""Texts of workflows: which language one is in, and what it becomes over given tables."""

from __future__ import annotations

import dataclasses
import importlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from frontends.workflow.errors import InvalidWorkflow
from frontends.workflow.ir.dag import Dag, Udf
from frontends.workflow.ir.reading import read
from frontends.workflow.ir.types import Schema
from frontends.workflow.rewrites.applying import in_bodies
from sparrow_py.errors import InvalidRequest

LANGUAGES = ("hive", "beer", "gas", "lindi", "ir")
SUFFIXES = {
    ".hive": "hive", ".hql": "hive", ".sql": "hive", ".beer": "beer", ".gas": "gas", ".py": "lindi", ".lindi": "lindi",
    ".ir": "ir",
}  # fmt: skip
TEXT_BYTES_MAX = 1 << 20
CODE_SUFFIX = ".py"
"""Of a file with a UDF; else its code is in a module."""


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
            made = read(self.text, self.file)
        else:
            parse = importlib.import_module(f"frontends.workflow.languages.{self.language}").parse
            made = parse(self.text, schemas, self.file, **({"strict": True} if self.strict else {}))
        return with_absolute_code(made, Path(self.file).parent)


def with_absolute_code(dag: Dag, directory: Path) -> Dag:
    """The DAG with the files of UDFs by absolute paths, which are from the directory as they are written.

    Executors have directories of their own. `InvalidWorkflow` if there is no such file.
    """

    def absolute(udf: Udf) -> Udf:
        where, _, name = udf.function.rpartition(":")
        if not where.endswith(CODE_SUFFIX):
            return udf
        path = directory.joinpath(where).resolve()
        if not path.is_file():
            raise InvalidWorkflow(f"UDF {udf.function}: there is no file {path}", udf.at)
        return dataclasses.replace(udf, function=f"{path}:{name}")

    changed = {udf.name: absolute(udf) for udf in dag.of_type(Udf)}
    if changed:
        dag = Dag(tuple(changed.get(one.name, one) for one in dag.operators), dag.results)
    return in_bodies(dag, lambda body: with_absolute_code(body, directory))


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
