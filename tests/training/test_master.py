"""Master weights: passes see levels, gradients are those of plain layers, packing gives what a pass saw."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from mezzotint import ParameterError, training
from tolerances import printed

torch = pytest.importorskip("torch")
pytest.importorskip("opacus")

from mezzotint.training.gradients import PrivateModule, factors  # noqa: E402
from mezzotint.training.master import Levels, pack_levels  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore:Full backward hook is firing")
functional = torch.nn.functional


class Words(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.word, self.out = torch.nn.Embedding(9, 6), torch.nn.Linear(6, 3)

    def forward(self, x: Any) -> Any:
        return self.out(self.word(x).mean(dim=1))


def dense() -> Any:
    return torch.nn.Sequential(torch.nn.Linear(5, 7), torch.nn.Tanh(), torch.nn.Linear(7, 3))


def image() -> Any:
    return torch.nn.Sequential(
        torch.nn.Conv2d(1, 3, 3), torch.nn.Tanh(), torch.nn.Flatten(), torch.nn.Linear(48, 3)
    )


CASES = {
    "dense": (dense, lambda: torch.randn(6, 5)),
    "image": (image, lambda: torch.randn(6, 1, 6, 6)),
    "words": (Words, lambda: torch.randint(9, (6, 4))),
}


@pytest.mark.parametrize("kind", CASES)
@pytest.mark.parametrize(("bits", "bound"), [(1, None), (2, None), (4, None), (3, 0.3)])
def test_passes_see_levels_and_packing_gives_them_bit_for_bit(
    kind: str, bits: int, bound: float | None
) -> None:
    torch.manual_seed(0)
    build, _ = CASES[kind]
    module = training.quantize_aware(build(), bits=bits, bound=bound)
    packed = pack_levels(module)
    values = packed.values()
    assert packed.bits == bits
    for name, layer in module.named_modules():
        if not hasattr(layer, "parametrizations"):
            continue
        seen = layer.weight.detach()
        assert np.array_equal(values[f"{name}.weight"], seen.numpy())
        assert all(len(row.unique()) <= 2**bits for row in seen)
        if bound is not None:
            assert float(seen.abs().max()) <= np.float32(bound)
    assert set(values) == set(dict(build().named_parameters()))


def test_levels_are_the_nearest_ones() -> None:
    weight = torch.linspace(-0.5, 0.5, 41)[None]
    rule = Levels(bits=2, bound=0.3, q=1.0)
    grid = torch.tensor([-0.3, -0.1, 0.1, 0.3])
    nearest = (weight[0][:, None] - grid).abs().min(dim=1).values
    torch.testing.assert_close((rule(weight)[0] - weight[0]).abs(), nearest, atol=1e-6, rtol=0)


@pytest.mark.parametrize("kind", CASES)
def test_rows_are_those_of_a_plain_module_with_these_levels(kind: str) -> None:
    torch.manual_seed(1)
    build, records = CASES[kind]
    module = training.quantize_aware(build(), bits=2)
    plain, x = build(), records()
    pack_levels(module)
    with torch.no_grad():
        for name, parameter in plain.named_parameters():
            layer = module.get_submodule(name.rpartition(".")[0])
            parameter.copy_(getattr(layer, name.rpartition(".")[2]))
    rows = {}
    for label, given in (("master", module), ("plain", plain)):
        private = PrivateModule(given, loss_reduction="sum")
        (private(x) ** 2).sum().backward()
        for name, parameter in given.named_parameters():
            plain_name = name.replace("parametrizations.weight.original", "weight")
            rows[label, plain_name] = parameter.grad_sample
    for name, _ in plain.named_parameters():
        first, second = rows["master", name], rows["plain", name]
        pair, other = factors(first), factors(second)
        assert (pair is None) == (other is None)
        if pair is not None:
            first, second = (torch.einsum("no,ni->noi", *one) for one in (pair, other))
        torch.testing.assert_close(first, second, rtol=1e-5, atol=1e-7)


def test_released_levels_of_master_weights_tell_more_than_kappa_would_allow() -> None:
    """Why kappa is 1: two levels kept with .6 (kappa .2), a shift of half the noise, no later gradients.

    The kept float walks on; its levels are replaced afresh each step. Values by a separate program.
    """
    points = np.linspace(-24.0, 24.0, 1201)
    width = points[1] - points[0]
    normal = np.exp(-((points[:, None] - points[None, :]) ** 2) / 2) / math.sqrt(2 * math.pi)
    upper = np.where(points > 0, 0.6, np.where(points < 0, 0.4, 0.5))

    def chances(mean: float, steps: int) -> Any:
        start = np.exp(-((points - mean) ** 2) / 2) / math.sqrt(2 * math.pi)
        densities = [start * upper, start * (1 - upper)]
        for _ in range(steps - 1):
            moved = [normal @ density * width for density in densities]
            densities = [density * seen for density in moved for seen in (upper, 1 - upper)]
        return np.array([density.sum() * width for density in densities])

    def variation(steps: int) -> float:
        return float(np.abs(chances(0.25, steps) - chances(-0.25, steps)).sum() / 2)

    claimed_with_kappa = math.erf(0.2 * 0.25 / math.sqrt(2))
    assert claimed_with_kappa == pytest.approx(0.03988, abs=printed(5))
    assert variation(1) == pytest.approx(0.03948, abs=printed(5))
    assert variation(3) == pytest.approx(0.04470, abs=printed(5))
    assert variation(1) < claimed_with_kappa < variation(3)


@pytest.mark.parametrize("q", [1.0, 0.9])
def test_a_private_run_trains_floats_and_claims_kappa_1(q: float) -> None:
    torch.manual_seed(2)
    generator = torch.Generator().manual_seed(0)
    y = torch.randint(2, (300,), generator=generator)
    x = torch.randn(300, 5, generator=generator) + 1.5 * (2 * y[:, None] - 1)
    plain = training.quantize_aware(torch.nn.Linear(5, 2), bits=2, q=q)
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x, y), batch_size=30)
    optimizer = torch.optim.SGD(plain.parameters(), lr=0.5)
    module, optimizer, loader, accountant = training.make_private(
        plain, optimizer, loader, target_epsilon=3.0, delta=1e-5, epochs=4, seed=1
    )
    for _ in range(4):
        for a, b in loader:
            optimizer.zero_grad()
            functional.cross_entropy(module(a), b).backward()
            optimizer.step()
    assert 2.99 < accountant.claim().epsilon <= 3
    assert accountant.claim().release.mechanism.phases[0].kappa == 1
    packed = pack_levels(plain, note={"claim": str(accountant.claim())})
    again = packed.load_into(torch.nn.Linear(5, 2))
    plain.eval()
    assert torch.equal(again.weight, plain.weight)
    assert float((again(x).argmax(dim=1) == y).float().mean()) > 0.9
    original = plain.parametrizations.weight.original
    assert len(original.unique()) == original.numel()


def test_replacement_draws_afresh_in_training_alone() -> None:
    torch.manual_seed(3)
    layer = training.quantize_aware(torch.nn.Linear(100, 100), bits=2, q=0.8)
    layer.eval()
    exact = layer.weight.detach()
    layer.train()
    replaced = (layer.weight.detach() != exact).float().mean()
    assert abs(float(replaced) - 0.2) < 5 * (0.16 / 10_000) ** 0.5
    layer.eval()
    assert torch.equal(layer.weight, exact)


@pytest.mark.parametrize(
    ("settings", "named"),
    [({"bits": 9}, "bits"), ({"q": 0.01}, "q"), ({"bound": 0.0}, "bound"), ({"bits": 0}, "bits")],
)
def test_what_cannot_be_quantized_is_refused(settings: dict[str, Any], named: str) -> None:
    with pytest.raises(ParameterError, match=named):
        training.quantize_aware(torch.nn.Linear(2, 2), **settings)
    with pytest.raises(ParameterError, match="no dense"):
        training.quantize_aware(torch.nn.LayerNorm(2))
    layer = training.quantize_aware(torch.nn.Linear(2, 2))
    with pytest.raises(ParameterError, match="a rule already"):
        training.quantize_aware(layer)
    with pytest.raises(ParameterError, match="quantize_aware"):
        pack_levels(torch.nn.Linear(2, 2))
