"""PageRank (examples/workflow/pagerank.gas), five iterations, by hand with SciPy's sparse matrices.

A vertex that is sent nothing is none after the iteration, and sends nothing in the next.
"""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from scipy import sparse

ITERATIONS = 5


def run(inputs: dict[str, str], outputs: dict[str, str]) -> None:
    edges, vertices = pq.read_table(inputs["edges"]), pq.read_table(inputs["vertices"])
    chunks = [*vertices["id"].chunks, *edges["src"].chunks, *edges["dst"].chunks]
    encoded = pa.chunked_array(chunks).combine_chunks().dictionary_encode()
    slots, size = encoded.indices.to_numpy(), len(encoded.dictionary)
    home, source, target = np.split(slots, [len(vertices), len(vertices) + len(edges)])
    given = "degree" in edges.column_names
    degrees = edges["degree"].to_numpy() if given else np.bincount(source, minlength=size)[source]
    shares = sparse.csr_array((1.0 / degrees, (target, source)), (size, size))
    links = sparse.csr_array((np.ones(len(source), np.int32), (target, source)), (size, size))
    ranks, alive = np.zeros(size), np.zeros(size, bool)
    ranks[home], alive[home] = vertices["value"].to_numpy(), True
    changes = True
    for _ in range(ITERATIONS):
        if changes:
            received = links @ alive.astype(np.int32) > 0
            changes = not np.array_equal(received, alive)
            alive = received
        ranks = np.where(alive, 0.15 + 0.85 * (shares @ ranks), 0.0)
    columns = {"id": encoded.dictionary.filter(pa.array(alive)), "value": ranks[alive]}
    pq.write_table(pa.table(columns), outputs["result"])
