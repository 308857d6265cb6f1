"""What a user writes, the same for one process and under torchrun: fit, predict, save. Sizes are small for tests.

Arguments: the source folder, the checkpoint folder, the result, and after how many seconds one rank kills itself once.
"""

import functools
import os
import signal
import sys
import threading
import warnings
from dataclasses import replace

sys.path.insert(0, sys.argv[1])
import numpy as np
import torch

from qsgp import QSGPRegressor
from qsgp.models import keywords
from qsgp.ranks import leads
from qsgp.training import options

folder, result, seconds, how = sys.argv[2], sys.argv[3], float(sys.argv[4]), sys.argv[5]
torch.set_num_threads(1)
warnings.simplefilter("ignore")
small = {"block": 40, "exact_rows": 200, "learn_points": 100, "variance_points": 100, "held_out": 100, "draws": 4}
options.PACES["cpu"] = replace(options.PACES["cpu"], **small)
keywords.Options = functools.partial(options.Options, checkpoint_seconds=0.0)

rng = np.random.default_rng(0)
X = rng.uniform(-3, 3, (3200, 2))
y = 10 + 5 * np.sin(X[:, 0]) * np.cos(X[:, 1]) + 0.3 * rng.normal(size=len(X))
model = QSGPRegressor(
    kernel="rbf", metric="ard", learn_hyperparameters=False, random_state=0, dtype="float64", checkpoint=folder
)
print("training", flush=True)
chosen = os.environ.get("RANK", "0") == os.environ.get("VICTIM", "0")
if seconds and chosen and os.environ.get("TORCHELASTIC_RESTART_COUNT", "0") == "0":
    threading.Timer(seconds, os.kill, (os.getpid(), getattr(signal, how))).start()
model.fit(X, y)
mean, std = model.predict(X[:300], return_std=True)
model.save(result + ".qsgp")
if leads():
    rmse = [record["rmse"] for record in model.history_]
    np.savez(result, mean=mean, std=std, rmse=rmse)
os._exit(0)  # the timer may still wait
