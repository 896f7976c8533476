"""A whole collection: 100,000 clients, 1,000 coordinates, epsilon 4, 8 bits a client."""

from __future__ import annotations

import numpy as np
import pytest

from mezzotint import privacy
from mezzotint.vectors import RankedCodebook, ranked_codebook, round_seeds

CLIENTS, DIMENSION = 100_000, 1000


@pytest.mark.slow
def test_the_mean_comes_back_from_a_mechanism_file_and_indices_alone(tmp_path, capsys):
    scheme = ranked_codebook(DIMENSION, 4.0, bits=8, clip_norm=2.0, beacon="end to end")
    scheme.save(tmp_path / "ranks.json")
    assert privacy.verify(tmp_path / "ranks.json").epsilon_upper <= 4.0
    rng = np.random.default_rng(17)
    centre = rng.normal(size=DIMENSION) / DIMENSION**0.5
    total, predicted = np.zeros(DIMENSION), 0.0
    codes: list[np.ndarray] = []
    for start in range(0, CLIENTS, 1000):
        vectors = (
            centre
            + rng.normal(size=(1000, DIMENSION))
            * rng.uniform(0, 1.2, size=(1000, 1))
            / DIMENSION**0.5
        )
        norms = np.linalg.norm(vectors, axis=1)
        vectors *= np.minimum(1, scheme.clip_norm / norms)[:, None]
        total += vectors.sum(axis=0)
        predicted += sum(scheme.error(float(norm)) for norm in np.minimum(norms, scheme.clip_norm))
        codes.append(
            scheme.encode(vectors, round_seeds(1, range(start, start + 1000))).astype(np.uint8)
        )
    np.save(tmp_path / "reports.npy", np.concatenate(codes))

    # The server: a file, and a byte a client.
    reports = np.load(tmp_path / "reports.npy")
    assert reports.nbytes == CLIENTS
    server = RankedCodebook.load(tmp_path / "ranks.json")
    mean = server.mean(reports, round_seeds(1, range(CLIENTS)))
    error = float(((mean - total / CLIENTS) ** 2).sum())
    expected = predicted / CLIENTS**2
    with capsys.disabled():
        print(
            f"\nsquared error {error:.6f}, predicted {expected:.6f}, squared norm {(total**2).sum() / CLIENTS**2:.4f}"
        )
    # Sum of about 1,000 squares of normal numbers: relative deviation sqrt(2 / 1000) = 0.045; five of them, 6e-7.
    assert abs(error / expected - 1) < 5 * (2 / DIMENSION) ** 0.5
