"""
A map with its uncertainty
==========================

Measurements at scattered places, a value and a standard deviation everywhere: geostatisticians call this kriging. There
are no stations in one corner of the map, and the second picture shows it.
"""

import matplotlib.pyplot as plt
import numpy as np

from qsgp import QSGPRegressor

rng = np.random.default_rng(1)


def truth(place: np.ndarray) -> np.ndarray:
    """A valley, a ridge and a hill."""
    east, north = place.T
    return 8 * np.sin(east / 12) + 0.15 * north + 10 * np.exp(-((east - 60) ** 2 + (north - 30) ** 2) / 300)


stations = rng.uniform(0, 100, (700, 2))
stations = stations[(stations[:, 0] < 60) | (stations[:, 1] < 60)]  # a corner nobody has visited
measured = truth(stations) + rng.normal(size=len(stations))

model = QSGPRegressor(random_state=0).fit(stations, measured)
print(f"{model.kernel_}, lengthscales {model.lengthscale_.round(1)} km, noise {model.noise_variance_**0.5:.2f}")

# %%
# Predict on a grid. ``return_std`` gives the standard deviation of a new *measurement*; ``predict_latent`` that of the
# field itself, without noise.

side = np.linspace(0, 100, 80)
grid = np.stack(np.meshgrid(side, side), -1).reshape(-1, 2)
mean, of_field = (part[:, 0] for part in model.predict_latent(grid))

fig, axes = plt.subplots(1, 2, figsize=(9, 3.8), sharey=True, layout="constrained")
for ax, values, title, colours in (
    (axes[0], mean, "predicted field", "viridis"),
    (axes[1], of_field, "its standard deviation", "magma"),
):
    picture = ax.pcolormesh(side, side, values.reshape(80, 80), cmap=colours, shading="gouraud", rasterized=True)
    ax.plot(*stations.T, ".", color="white", markersize=1.5, alpha=0.7)
    ax.set(title=title, xlabel="km east", aspect="equal")
    fig.colorbar(picture, ax=ax, shrink=0.85)
axes[0].set_ylabel("km north")
plt.show()

# %%
# The standard deviation is right about this: where there are no stations the errors are larger, and the model says so.

error = np.abs(mean - truth(grid))
empty = (grid[:, 0] > 60) & (grid[:, 1] > 60)
for name, where in {"among stations": ~empty, "empty corner": empty}.items():
    inside = np.mean(error[where] < 1.96 * of_field[where])
    size, std = error[where].mean(), of_field[where].mean()
    print(f"{name:15} error {size:5.2f}, standard deviation {std:5.2f}, 95 % band {inside:.0%}")
