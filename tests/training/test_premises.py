"""Attacks on the premise that row i of every tensor is record i's gradient: refused, or within one clip norm.

Each attack computes the released integers of two neighbouring batches exactly, without noise, and compares
the distance with the one clip norm that every claim rests on.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from mezzotint import ParameterError, training

torch = pytest.importorskip("torch")
pytest.importorskip("opacus")

from mezzotint.training import clipped, optimizers  # noqa: E402
from mezzotint.training.batches import Drawn  # noqa: E402
from mezzotint.training.gradients import PrivateModule  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore:Full backward hook is firing")

WIDTH = 4
CLIP = 0.5


class Asked(torch.nn.Module):
    """A learned query: its layer is given one row, whatever the batch is."""

    def __init__(self) -> None:
        super().__init__()
        self.body = torch.nn.Linear(WIDTH, WIDTH)
        self.ask = torch.nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Any) -> Any:
        return self.body(x) + self.ask(torch.ones(1, WIDTH))


class AskedTwice(torch.nn.Module):
    """One layer for records and for a constant: Opacus adds the constant's gradient to record 0."""

    def __init__(self) -> None:
        super().__init__()
        self.body = torch.nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Any) -> Any:
        return self.body(x) + self.body(torch.ones(1, WIDTH))


class Tied(torch.nn.Module):
    """Two layers that share a weight, one of them given a constant."""

    def __init__(self) -> None:
        super().__init__()
        self.body = torch.nn.Linear(WIDTH, WIDTH, bias=False)
        self.ask = torch.nn.Linear(WIDTH, WIDTH, bias=False)
        self.ask.weight = self.body.weight

    def forward(self, x: Any) -> Any:
        return self.body(x) + self.ask(torch.ones(1, WIDTH))


class Positions(torch.nn.Module):
    """Learned positions that are looked up once for the batch, as in GPT-2."""

    def __init__(self, expanded: bool = False) -> None:
        super().__init__()
        self.expanded = expanded
        self.tokens = torch.nn.Embedding(9, WIDTH)
        self.positions = torch.nn.Embedding(5, WIDTH)
        self.out = torch.nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Any) -> Any:
        ids = torch.arange(x.shape[1])[None]
        if self.expanded:
            ids = ids.expand(len(x), -1)
        return self.out((self.tokens(x) + self.positions(ids)).mean(dim=1))


class TimeFirst(torch.nn.Module):
    """Tensors with time before records inside."""

    def __init__(self) -> None:
        super().__init__()
        self.inside = torch.nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Any) -> Any:
        return self.inside(x.transpose(0, 1)).mean(dim=0)


def optimizer_of(module: Any, drawn: Drawn | None) -> Any:
    inner = torch.optim.SGD(module.parameters(), lr=0.1)
    return optimizers.NoisyOptimizer(
        inner, noise_multiplier=0.0, clip_norm=CLIP, expected_batch_size=8, drawn=drawn
    )


def step(module: Any, x: Any, *, factored: bool = True, reduction: str = "sum") -> Any:
    """A step on a batch that a loader drew."""
    drawn = Drawn()
    private = PrivateModule(module, loss_reduction=reduction, factored=factored)  # type: ignore[arg-type]
    optimizer = optimizer_of(private, drawn)
    drawn.add(len(x))
    losses = (private(x) ** 2).flatten(1).sum(dim=1)
    (losses.mean() if reduction == "mean" else losses.sum()).backward()
    optimizer.step()
    return optimizer


def records(count: int = 7) -> Any:
    return torch.randn(count, WIDTH, generator=torch.Generator().manual_seed(2))


@pytest.mark.parametrize("factored", [True, False])
@pytest.mark.parametrize(
    ("module", "batch", "named"),
    [
        (Asked, records, "1 row in ask"),
        (AskedTwice, records, "body"),
        (Tied, records, "body.weight"),
        (Positions, lambda: torch.randint(9, (7, 5)), "1 row in positions.weight"),
        (TimeFirst, lambda: torch.randn(7, 3, WIDTH), "rows in inside"),
        (TimeFirst, lambda: torch.randn(3, 7, WIDTH), "rows in inside"),
    ],
    ids=["constant", "called twice", "tied", "positions", "time first", "more times"],
)
def test_rows_that_are_not_records_are_refused(
    factored: bool, module: Any, batch: Any, named: str
) -> None:
    torch.manual_seed(0)
    with pytest.raises(ParameterError, match=named):
        step(module(), batch(), factored=factored)


@pytest.mark.parametrize("factored", [True, False])
def test_expanded_positions_are_rows(factored: bool) -> None:
    torch.manual_seed(0)
    step(Positions(expanded=True), torch.randint(9, (7, 5)), factored=factored)
    step(Positions(expanded=True), torch.randint(9, (0, 5)), factored=factored)


def test_without_the_check_a_record_moves_the_sum_by_many_clip_norms(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # What the refusal prevents, computed: the gradient of a constant is everybody's, in one row.
    monkeypatch.setattr(optimizers, "record_count", lambda _, samples: max(map(len, samples)))
    monkeypatch.setattr(clipped, "check_records", lambda _: None)

    def released(x: Any) -> Any:
        torch.manual_seed(0)
        private = PrivateModule(Asked(), loss_reduction="sum")
        with torch.no_grad():
            for parameter in (private.ask.weight, private.ask.bias, private.body.bias):
                parameter.zero_()
        optimizer = optimizer_of(private, None)
        (private(x) ** 2).sum().backward()
        optimizer.clip_and_accumulate()
        return optimizer._sums.double()

    # Records whose parts in the constant's row cancel, and one whose part in everybody's norm is huge.
    calm = torch.cat([torch.ones(32, WIDTH), -torch.ones(32, WIDTH)])
    wild = torch.cat([calm, 1e4 * torch.ones(1, WIDTH)])
    moved = float((released(wild) - released(calm)).norm()) / 2**16
    assert moved > 30


@pytest.mark.parametrize("sizes", [(7, 6), (7, 1), (1, 7)])
def test_compiled_loops_refuse_other_lengths(sizes: tuple[int, int]) -> None:
    rows, gains = (np.ones((size, 3), dtype=np.float32) for size in sizes)
    one = clipped.Gradients(rows=rows, gains=gains)
    sums = clipped.ClippedSums(clip_norm=1.0, coordinates=9)
    with pytest.raises(ParameterError, match="different numbers of rows"):
        sums([one])
    with pytest.raises(ParameterError, match="different numbers of rows"):
        clipped.clipped_sum([(torch.from_numpy(gains), torch.from_numpy(rows))], sums)


@pytest.mark.parametrize("factored", [True, False])
@pytest.mark.parametrize("count", [6, 8, 0])
def test_a_step_of_other_records_than_the_batch_is_refused(factored: bool, count: int) -> None:
    module = PrivateModule(torch.nn.Linear(WIDTH, 1), loss_reduction="sum")
    drawn = Drawn()
    optimizer = optimizer_of(module, drawn)
    drawn.add(7)
    module(records(count)).sum().backward()
    before = module._module.weight.detach().clone()
    with pytest.raises(ParameterError, match="weight losses by 0"):
        optimizer.step()
    assert torch.equal(before, module._module.weight)


def equal_records(module: Any, count: int, kind: Any, reduction: str) -> Any:
    """The integer sum of equal records under autocast."""
    torch.manual_seed(1)
    private = PrivateModule(module(), loss_reduction=reduction)  # type: ignore[arg-type]
    optimizer = optimizer_of(private, None)
    x = torch.randn(1, 32).expand(count, -1)
    with torch.autocast("cpu", dtype=kind):
        outputs = private(x)
    labels = torch.zeros(count, dtype=torch.long)
    torch.nn.functional.cross_entropy(outputs.float(), labels, reduction=reduction).backward()
    optimizer.clip_and_accumulate()
    return optimizer._sums.double()


def network() -> Any:
    return torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.Tanh(), torch.nn.Linear(64, 10))


@pytest.mark.parametrize("kind", [torch.bfloat16, torch.float16], ids=["bfloat16", "float16"])
@pytest.mark.parametrize("count", [256, 1000, 4096])
def test_sixteen_bits_move_by_one_clip_norm_under_a_sum_and_are_refused_under_a_mean(
    kind: Any, count: int
) -> None:
    units = clipped.ClippedSums(clip_norm=CLIP, coordinates=2762).units
    more = equal_records(network, count + 1, kind, "sum")
    moved = float((more - equal_records(network, count, kind, "sum")).norm()) / units
    assert 0.9 < moved <= 1
    with pytest.raises(ParameterError, match="loss_reduction='sum'"):
        equal_records(network, count, kind, "mean")


def test_a_mean_in_sixteen_bits_would_move_by_more_than_a_clip_norm(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # What the refusal prevents: 1/n is rounded alike in all rows, and to another side at n + 1.
    monkeypatch.setattr("mezzotint.training.gradients._check_precision", lambda *_: None)
    moved = [
        float(
            (
                equal_records(network, count + 1, torch.bfloat16, "mean")
                - equal_records(network, count, torch.bfloat16, "mean")
            ).norm()
        )
        / 2**16
        for count in (1000, 4096)
    ]
    assert max(moved) > 1.5


class Running(torch.nn.Module):
    """A mean of what it has seen, in a buffer, written in one of several ways."""

    def __init__(self, way: str) -> None:
        super().__init__()
        self.way = way
        self.layer = torch.nn.Linear(WIDTH, WIDTH)
        self.register_buffer("seen", torch.zeros(WIDTH))

    def forward(self, x: Any) -> Any:
        mean = x.detach().mean(dim=0)
        if self.way == "in place":
            self.seen.mul_(0.9).add_(mean)
        elif self.way == "replaced":
            self.seen = 0.9 * self.seen + mean
        elif self.way == "data":
            self.seen.data.copy_(0.9 * self.seen + mean)
        elif self.way == "parameter":
            with torch.no_grad():
                self.layer.weight.mul_(1.01)
        return self.layer(x)


@pytest.mark.parametrize(
    ("way", "named"),
    [
        ("in place", "seen"),
        ("replaced", "seen"),
        ("data", "seen"),
        ("parameter", "layer.weight"),
    ],
)
def test_state_that_a_pass_changes_is_refused_by_name(way: str, named: str) -> None:
    # A buffer goes out with the module: without noise, and without a limit to one record's part.
    with pytest.raises(ParameterError, match=f"module={named}: the forward pass changes it"):
        step(Running(way), records())
    module = PrivateModule(Running(way), loss_reduction="sum")
    kept = module.state_dict()
    with torch.no_grad():
        module._module.way = "none"
        module(records())
    module._module.way = way
    with pytest.raises(ParameterError, match=named):
        module(records())
    if way != "replaced":
        assert all(torch.equal(kept[name], value) for name, value in module.state_dict().items())


def private(module: Any) -> Any:
    data = torch.utils.data.TensorDataset(records(40))
    loader = torch.utils.data.DataLoader(data, batch_size=8)
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
    return training.make_private(module, optimizer, loader, noise_multiplier=1.0, delta=1e-5)


def frozen(layer: Any) -> Any:
    return torch.nn.Sequential(layer.requires_grad_(False), torch.nn.Linear(WIDTH, 1))


@pytest.mark.parametrize(
    ("module", "words"),
    [
        (lambda: torch.nn.Embedding(9, WIDTH, max_norm=1.0), "max_norm"),
        (lambda: torch.nn.EmbeddingBag(9, WIDTH, max_norm=1.0), "max_norm"),
        (lambda: frozen(torch.nn.InstanceNorm1d(3, track_running_stats=True)), "running"),
        (lambda: frozen(torch.nn.BatchNorm1d(WIDTH)), "statistics of the batch"),
        (lambda: frozen(torch.nn.BatchNorm1d(WIDTH, affine=False)), "statistics of the batch"),
        (lambda: frozen(torch.nn.SyncBatchNorm(WIDTH)), "statistics of the batch"),
        (
            lambda: frozen(torch.nn.BatchNorm1d(WIDTH, track_running_stats=False).eval()),
            "statistics of the batch",
        ),
    ],
)
def test_layers_of_batch_state_are_refused(module: Any, words: str) -> None:
    with pytest.raises(ParameterError, match=words):
        private(module())


def test_batch_norm_with_fixed_statistics_is_accepted_until_it_trains() -> None:
    module, optimizer, loader, _ = private(frozen(torch.nn.BatchNorm1d(WIDTH).eval()))
    (x,) = next(iter(loader))
    module(x).sum().backward()
    optimizer.step()
    module.train()
    with pytest.raises(ParameterError, match=r"0\.num_batches_tracked"):
        module(x)
