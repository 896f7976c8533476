"""Dense layers' gradients left factored: the same numbers as Opacus's, and no way to read them wrongly."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest

from mezzotint.datasets import Dataset
from mezzotint.training import models, private, trainer
from mezzotint.training.gradients import PrivateModule
from training.runs import Method, run_of

torch = pytest.importorskip("torch")
opacus = pytest.importorskip("opacus")
samples = pytest.importorskip("mezzotint.training.gradients")

# Opacus listens with full backward hooks on modules whose inputs need no gradient; torch remarks on that.
pytestmark = pytest.mark.filterwarnings("ignore:Full backward hook is firing")


class Twice(torch.nn.Module):
    """One layer that is called two times."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(4, 4)

    def forward(self, x: Any) -> Any:
        return self.layer(torch.tanh(self.layer(x)))


def gradients(wrapper: Any, build: Any, x: Any) -> list[Any]:
    """Per-sample gradients of a sum of squares."""
    torch.manual_seed(0)
    module = wrapper(build(), loss_reduction="sum")
    (module(x) ** 2).sum().backward()
    return [parameter.grad_sample for parameter in module.parameters() if parameter.requires_grad]


def frozen(what: str) -> Any:
    layer = torch.nn.Linear(4, 3)
    getattr(layer, what).requires_grad_(False)
    return torch.nn.Sequential(layer, torch.nn.Linear(3, 2))


@pytest.mark.parametrize(
    ("build", "shape", "factored"),
    [
        (lambda: torch.nn.Linear(4, 3), (6, 4), [True, False]),
        (lambda: torch.nn.Linear(4, 3, bias=False), (6, 4), [True]),
        (lambda: torch.nn.Linear(4, 3), (6, 5, 4), [False, False]),
        (
            lambda: models.task("cnn", shape=(28, 28), classes=10).module,
            (5, 28, 28),
            [False] * 4 + [True, False] * 2,
        ),
        (Twice, (6, 4), [False, False]),
        (lambda: frozen("weight"), (6, 4), [False, True, False]),
        (lambda: frozen("bias"), (6, 4), [True, True, False]),
    ],
    ids=["dense", "no bias", "sequences", "cnn", "called twice", "frozen weight", "frozen bias"],
)
def test_the_same_gradients_as_opacus(
    build: Any, shape: tuple[int, ...], factored: list[bool]
) -> None:
    x = torch.randn(shape, generator=torch.Generator().manual_seed(1))
    mine, theirs = (
        gradients(kind, build, x) for kind in (samples.PrivateModule, opacus.GradSampleModule)
    )
    assert [samples.factors(sample) is not None for sample in mine] == factored
    for one, other in zip(mine, theirs, strict=True):
        assert one.shape == other.shape
        found = samples.factors(one)
        if found is not None:
            assert torch.isnan(one).all()
            one = found[0][:, :, None] * found[1][:, None, :]
        torch.testing.assert_close(one, other, rtol=1e-6, atol=1e-7)


def test_opacus_s_own_optimizer_takes_no_step_on_factors(blobs: Dataset) -> None:
    module = samples.PrivateModule(torch.nn.Linear(5, 1), loss_reduction="sum")
    inner = torch.optim.SGD(module.parameters(), lr=0.1)
    optimizer = opacus.optimizers.DPOptimizer(
        inner, noise_multiplier=0.0, max_grad_norm=1.0, expected_batch_size=2
    )
    module(torch.from_numpy(blobs.train_x[:2])).sum().backward()
    optimizer.pre_step()
    assert all(torch.isnan(parameter.grad).all() for parameter in module.parameters())


@pytest.mark.parametrize("model", ["softmax", "cnn"])
def test_a_run_ends_in_the_weights_of_gradients_multiplied_out(
    model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    generator = np.random.default_rng(2)
    x, y = generator.random((60, 20, 20)).astype(np.float32), generator.integers(0, 3, 60)
    data = Dataset(name="noise", train_x=x, train_y=y, test_x=x, test_y=y, classes=3)
    settings = trainer.TrainingSettings(steps=4, batch_size=20, step_size=0.5)
    ends: list[dict[str, Any]] = []
    for factored in (True, False):
        monkeypatch.setattr(private, "PrivateModule", partial(PrivateModule, factored=factored))
        task = models.task(model, shape=(20, 20), classes=3)
        run = run_of(data, task, Method(noise_multiplier=0.0), settings, seed=7)
        run.run()
        ends.append(run.weights())
    for name, value in ends[0].items():
        # Products in another order: some integers differ by one unit.
        np.testing.assert_allclose(value, ends[1][name], rtol=0, atol=4 * 0.5 * 0.5 * 2.0**-14)
        assert np.abs(value).max() > 0
