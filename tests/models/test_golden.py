"""Model files written once and kept: this version and all later ones must read them to the same predictions."""

import json

import numpy as np
import pytest

import qsgp
from golden.make import FOLDER, predictions

KNOWN = json.loads((FOLDER / "predictions.json").read_text())


def test_every_golden_file_has_its_predictions():
    assert {path.name for path in FOLDER.glob("*.qsgp")} == set(KNOWN) and len(KNOWN) >= 11


@pytest.mark.parametrize("name", sorted(KNOWN))
def test_a_golden_file_predicts_as_it_did(name):
    """Other machines round differently: 1e-4 for float32 tables, far below any deviation."""
    found = predictions(qsgp.load(FOLDER / name))
    assert found.keys() == KNOWN[name].keys()
    for part, values in KNOWN[name].items():
        if part == "classes":
            assert found[part] == values
        else:
            np.testing.assert_allclose(found[part], values, rtol=1e-4, atol=1e-4)
