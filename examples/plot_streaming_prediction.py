"""
Predicting a file larger than the memory
========================================

A model is small, but the table to predict may not be. Reading a portion, predicting it and writing it needs memory for
one portion only, whatever the size of the file. ``qsgp predict`` does the same from the command line. The file here
has 100,000 rows so that the page builds in seconds; with a billion only the time would change.
"""

import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from qsgp import QSGPRegressor
from qsgp.datasets import make_robot_arm, robot_arm_chunks

X, y = make_robot_arm(500, noise=0.1, random_state=1)
model = QSGPRegressor(random_state=0).fit(X, y)

# %%
# The file, written in portions too: eight columns of joint angles.

folder = tempfile.TemporaryDirectory()
source, result = Path(folder.name) / "angles.parquet", Path(folder.name) / "predicted.parquet"
names = [f"joint_{k}" for k in range(8)]
schema = pa.schema([(name, pa.float32()) for name in names])
with pq.ParquetWriter(source, schema) as file:
    for angles, _ in robot_arm_chunks(100_000, chunk=25_000):
        file.write_table(pa.table(dict(zip(names, angles.T, strict=True)), schema=schema))

# %%
# The loop. ``iter_batches`` holds one portion; ``predict`` splits it further if ``max_memory`` asks for it. Whatever
# you want to know about all predictions is added up on the way, here the counts of a histogram.

edges = np.linspace(-4, 4, 41), np.linspace(0, 1, 41)
counts = np.zeros((40, 40))
out = pa.schema([("mean", pa.float64()), ("deviation", pa.float64())])
with pq.ParquetFile(source) as rows, pq.ParquetWriter(result, out) as file:
    for batch in rows.iter_batches(batch_size=10_000):
        mean, deviation = model.predict(batch.to_pandas().to_numpy(), return_std=True)
        file.write_table(pa.table({"mean": mean, "deviation": deviation}))
        counts += np.histogram2d(mean, deviation, bins=edges)[0]
print(f"{pq.read_metadata(result).num_rows:,} rows predicted, {batch.nbytes / 1e6:.1f} MB of them at a time")

# %%
# Where the model is unsure: rows near the top are those to measure next.

fig, ax = plt.subplots(figsize=(6, 3.6), layout="constrained")
picture = ax.pcolormesh(*edges, np.where(counts, counts, np.nan).T, cmap="viridis")
fig.colorbar(picture, ax=ax, label="rows")
ax.set(xlabel="predicted mean", ylabel="standard deviation")
plt.show()
folder.cleanup()
