"""What the two engines on Spark have alike: how a script starts Spark, and what a machine needs to have it.

Spark runs within the script's process and a Java machine of its own, on all cores, and listens on this host alone. A
host process keeps it for its next jobs.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path
from typing import ClassVar

from frontends.workflow.engines.base import ALL_RULES, Engine
from frontends.workflow.engines.runs import loaded
from frontends.workflow.ir.dag import Dag, Values
from frontends.workflow.ir.scalars.expressions import Scalar
from frontends.workflow.ir.types import Schema, Type

JAVA_MISSING = "a Java runtime, 17 or later (Debian: apt-get install openjdk-17-jre-headless)"
WARM_UP = Dag((Values(name="one", columns=Schema.of(n=Type.INTEGER), rows=((Scalar("1"),),)),), ("one",))
"""A job that makes a host process warm."""

SETTINGS = """\
HALF_OF_MEMORY_MIB = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2**21
SETTINGS = {
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.authenticate": "true",  # So that nobody else on this host reads what Spark sends.
    "spark.driver.maxResultSize": "0",
    "spark.driver.memory": os.environ.get("SPARK_DRIVER_MEMORY") or f"{HALF_OF_MEMORY_MIB}m",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
    "spark.cleaner.periodicGC.interval": "1min",  # Relations that nobody has any more are dropped then.
    "spark.default.parallelism": str(THREADS),
    "spark.sql.shuffle.partitions": str(THREADS),
    "spark.sql.ansi.enabled": "false",  # With it n % 0 and casts of texts are errors.
    "spark.sql.caseSensitive": "true",
    "spark.sql.variable.substitute": "false",  # Texts may have ${...}.
}
"""
"""Defines `SETTINGS`; needs `os`, `sys` and `THREADS`."""
SESSION = '''\
def session() -> SparkSession:
    """Spark in a Java machine of this process, which is kept for the process's next job."""
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    return SparkSession.builder.master(f"local[{THREADS}]").config(map=SETTINGS).getOrCreate()
'''
"""Defines `session`; needs `SETTINGS` and `from pyspark.sql import SparkSession`."""


class SparkEngine(Engine):
    """An engine whose scripts run on Spark."""

    packages = ("pyspark",)
    extra: ClassVar[str] = "workflow-spark"

    def missing_program(self) -> str | None:
        return None if _java() else JAVA_MISSING

    def warm_up(self) -> None:
        """Start Java, Spark and its first job, which take several seconds."""
        super().warm_up()
        with tempfile.TemporaryDirectory(prefix="workflow-spark-") as directory:
            loaded(self.script(WARM_UP, ALL_RULES))({}, {"one": str(Path(directory, "one.parquet"))})


def _java() -> bool:
    """Whether Spark would find Java, as its own start script looks for it."""
    home = os.environ.get("JAVA_HOME")
    return (shutil.which("java") if not home else shutil.which(str(Path(home, "bin", "java")))) is not None
