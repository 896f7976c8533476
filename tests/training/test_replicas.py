"""Two processes that train together make the same step, on disjoint records, with one draw of the noise."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mezzotint import privacy, training
from mezzotint.training import rqp
from tolerances import MANY

torch = pytest.importorskip("torch")
pytest.importorskip("opacus")

EPOCHS = 3


def train(
    *, whole: bool = False, noise: float = 1.0, bits: int | None = 4
) -> tuple[np.ndarray, Any, list[list[int]]]:
    """Weights, claim and records seen of a small run; of all its replicas if there is a group."""
    rank = torch.distributed.get_rank() if torch.distributed.is_initialized() else 0
    torch.manual_seed(rank)  # replicas start apart: rank 0 says where
    rng = np.random.default_rng(0)
    x = torch.from_numpy(rng.normal(size=(120, 5)).astype(np.float32))
    y = torch.from_numpy(rng.integers(0, 2, 120))
    records = torch.utils.data.TensorDataset(x, y, torch.arange(120))
    module = torch.nn.Sequential(torch.nn.Linear(5, 4), torch.nn.Tanh(), torch.nn.Linear(4, 1))
    optimizer = torch.optim.SGD(module.parameters(), lr=0.5, momentum=0.5)
    loader = torch.utils.data.DataLoader(records, batch_size=120 if whole else 24)
    module, optimizer, loader, accountant = training.make_private(
        module, optimizer, loader, noise_multiplier=noise, delta=1e-5, bits=bits
    )
    seen = []
    for _ in range(EPOCHS):
        for features, labels, names in loader:
            seen.append(names.tolist())
            optimizer.zero_grad()
            losses = torch.nn.functional.softplus(-module(features).squeeze(1) * (2 * labels - 1))
            losses.mean().backward()
            optimizer.step()
    weights = np.concatenate(
        [parameter.detach().numpy().ravel() for parameter in module.parameters()]
    )
    return weights, accountant.claim(), seen


def replica(rank: int, folder: str, settings: dict[str, Any]) -> None:
    """One of two processes."""
    torch.set_num_threads(1)
    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=2
    )
    weights, claim, seen = train(**settings)
    torch.distributed.destroy_process_group()
    torch.save((torch.from_numpy(weights), claim.epsilon, seen), f"{folder}/{rank}.pt")


def both(folder: Path, **settings: Any) -> list[Any]:
    """What two replicas end with."""
    torch.multiprocessing.start_processes(
        replica, (str(folder), settings), nprocs=2, start_method="fork"
    )
    return [torch.load(folder / f"{rank}.pt") for rank in (0, 1)]


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="starts processes by fork")
def test_replicas_end_in_the_same_bits(tmp_path: Path) -> None:
    (first, epsilon, seen), (second, other, also_seen) = both(tmp_path)
    assert torch.equal(first, second)
    assert epsilon == other
    # Each record belongs to one replica, and enters with the rate of the whole batch.
    assert all(name % 2 == 0 for batch in seen for name in batch)
    assert all(name % 2 == 1 for batch in also_seen for name in batch)
    assert len({tuple(batch) for batch in seen}) > 1
    phase = rqp.Phase(
        noise_multiplier=1.0, kappa=1.0, sampling=rqp.Poisson(rate=0.2), steps=5 * EPOCHS
    )
    assert epsilon == pytest.approx(
        privacy.account(rqp.training_release([phase], delta=1e-5)).epsilon, rel=MANY
    )


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="starts processes by fork")
def test_two_replicas_take_the_step_of_one_process(tmp_path: Path) -> None:
    # Whole batches and hardly any noise: eta z C / m = 4e-6 on a weight and step, and units of 2^-16 of a clip norm.
    (first, epsilon, seen), _ = both(tmp_path, whole=True, noise=1e-3, bits=None)
    assert [len(batch) for batch in seen] == [60] * EPOCHS
    alone, claim, _ = train(whole=True, noise=1e-3, bits=None)
    assert epsilon == claim.epsilon
    # The noise and the units named above, over all steps.
    np.testing.assert_allclose(first, alone, atol=3e-4)
    # Half of the records would have led elsewhere.
    torch.manual_seed(0)
    start = torch.nn.Sequential(torch.nn.Linear(5, 4), torch.nn.Tanh(), torch.nn.Linear(4, 1))
    begin = np.concatenate([parameter.detach().numpy().ravel() for parameter in start.parameters()])
    assert np.abs(alone - begin).max() > 0.02
