"""The systems compared, by name. None of their packages is imported before it is needed."""

from __future__ import annotations

from benchmarks.faults_peers.on_celery import Celery
from benchmarks.faults_peers.on_dask import Dask
from benchmarks.faults_peers.on_ray import Ray
from benchmarks.faults_peers.on_sparrow import Sparrow
from benchmarks.faults_peers.system import System

SYSTEMS: dict[str, System] = {system.name: system for system in (Sparrow(), Dask(), Ray(), Celery())}
