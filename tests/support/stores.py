"""Blob stores that fetch nothing."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

from node_monitor.blobs.blob_store import BlobStore
from node_monitor.blobs.blobs import BlobTable
from sparrow_py.access.credentials import OPEN
from sparrow_py.timing.clock import Clock


def store_in(
    folder: Path | str = "",
    bytes_max: int = 1 << 30,
    readers_gid: int | None = None,
    readers: Mapping[str, int] | None = None,
) -> BlobStore:
    """A store that has started, in this folder or a temporary one of its own."""
    table = BlobTable(bytes_max, retention_s=60.0, lease_s=10.0)
    store = BlobStore(table, cast("Any", None), lambda: OPEN, Clock(), str(folder), readers_gid, readers)
    store.start()
    return store
