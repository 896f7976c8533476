"""On a GPU, where there is one: both engines against the CPU's kernels."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any, Literal

import numpy as np
import pytest
import torch

from mezzotint import Mechanism, ParameterError
from mezzotint.core import gpu
from mezzotint.core.sampler import codes_from_words
from reference.gpu import outside, words_of_draws
from reference.sampler import inputs_for
from strategies import random_knots, random_weights

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device here")

KEY = bytes(range(32))
ENGINES: list[Literal["plain", "fused"]] = ["plain", "fused"] if find_spec("triton") else ["plain"]


def table(spacing: str) -> Mechanism:
    generator = np.random.default_rng(1)
    knots = random_knots(generator, 12, spacing, 0.5)
    return Mechanism(
        knots=knots,
        levels=np.arange(16),
        weights=random_weights(generator, knots.size, 16, 6.0, 0.2),
    )


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("spacing", ["even", "uneven", "clustered"])
def test_same_codes_as_the_cpu(spacing: str, dtype: Any, engine: Literal["plain", "fused"]) -> None:
    mechanism = table(spacing)
    x = inputs_for(mechanism, np.random.default_rng(2), 1_000_003).astype(dtype)
    codes, counts = gpu.draw(mechanism, torch.from_numpy(x).cuda(), KEY, engine)
    np.testing.assert_array_equal(
        codes.cpu().numpy(),
        codes_from_words(mechanism, x, words_of_draws(KEY, x.size, mechanism.bits)),
    )
    assert counts == (*outside(mechanism, x), 0)


def test_codes_stay_on_the_device_and_never_repeat() -> None:
    x = torch.zeros(2, 256, device="cuda", requires_grad=True)
    draws = [table("even").privatize(x) for _ in range(20)]
    assert all(codes.device == x.device and codes.shape == x.shape for codes in draws)
    assert len({codes.cpu().numpy().tobytes() for codes in draws}) == 20


def test_nan_and_out_of_range_are_found_on_the_device() -> None:
    mechanism = table("uneven")
    x = torch.full((100, 10), mechanism.lower, device="cuda", dtype=torch.float64)
    x[41, 7] = mechanism.upper + 1
    with pytest.raises(ParameterError, match="input 41, 7: lies outside"):
        mechanism.privatize(x, on_out_of_range="error")
    x[3, 2] = float("nan")
    with pytest.raises(ParameterError, match="input 3, 2 is NaN"):
        mechanism.privatize(x)
