from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from mezzotint import Mechanism, ParameterError


def one_bit() -> Mechanism:
    return Mechanism(
        knots=[-1, 1], levels=[-2, 2], weights=[[3 * 2**30, 2**30], [2**30, 3 * 2**30]]
    )


def test_torch_tensors_come_back_as_tensors() -> None:
    torch = pytest.importorskip("torch")
    x = np.random.default_rng(0).uniform(-1, 1, (6, 5)).astype(np.float32)
    expected = one_bit().privatize(x, 2)
    tensor = torch.from_numpy(x)
    for given_tensor in (
        tensor,
        tensor.clone().requires_grad_(),
        tensor.T.contiguous().T,
        tensor.double(),
    ):
        codes = one_bit().privatize(given_tensor, 2)
        assert isinstance(codes, torch.Tensor)
        assert codes.dtype == torch.uint8
        np.testing.assert_array_equal(codes.numpy(), expected)
    wide = Mechanism(knots=[-1, 1], levels=np.arange(512), weights=np.full((2, 512), 2**23))
    codes = wide.privatize(tensor, 2)
    assert codes.dtype == torch.int32
    np.testing.assert_array_equal(codes.numpy(), wide.privatize(x, 2))


def test_torch_types_and_refusals() -> None:
    torch = pytest.importorskip("torch")
    for dtype in (torch.bfloat16, torch.float16, torch.int64, torch.bool):
        codes = one_bit().privatize(torch.ones(40, dtype=dtype), 2)
        np.testing.assert_array_equal(codes.numpy(), one_bit().privatize(np.ones(40), 2))
    assert one_bit().privatize(torch.tensor(0.5), 1).shape == ()
    assert one_bit().privatize(torch.empty(0, 3), 1).shape == (0, 3)
    for bad in (
        torch.ones(3, device="meta"),
        torch.ones(3, dtype=torch.complex64),
        torch.ones(3).to_sparse(),
    ):
        with pytest.raises(ParameterError, match="x=tensor"):
            one_bit().privatize(bad)
    with pytest.raises(ParameterError, match="input 1 is NaN"):
        one_bit().privatize(torch.tensor([0.0, float("nan")]))


def test_sampling_does_not_import_torch() -> None:
    program = (
        "import sys, mezzotint as mz; m = mz.Mechanism(knots=[0, 1], levels=[0, 1], weights=[[2**31] * 2] * 2);"
        "m.privatize([0.5]); print('torch' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=True
    )
    assert done.stdout == "False\n"
