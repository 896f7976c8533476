"""One call makes an ordinary script private: what it learns, what it claims, what it refuses."""

from __future__ import annotations

import itertools
import math
import sys
import warnings
from typing import Any

import numpy as np
import pytest

from laws.registry import judges
from mezzotint import InfeasibleError, ParameterError, privacy, training
from mezzotint.datasets import Dataset
from mezzotint.training import Banded, models, optimizers, rqp, trainer
from mezzotint.training.accountant import BudgetSpentError
from mezzotint.training.audit import audit
from mezzotint.training.projection import (
    ContractionWarning,
    MemoryLossWarning,
    TrainingWarning,
    projection,
)
from tolerances import FEW, SINGLE
from training.runs import Method, run_of

torch = pytest.importorskip("torch")
pytest.importorskip("opacus")


def parts(
    data: Dataset, *, inner: Any = None, batch_size: int = 20, module: Any = None, **loader: Any
) -> tuple[Any, Any, Any]:
    """Module, optimizer and loader of an ordinary script."""
    torch.manual_seed(3)
    module = torch.nn.Linear(5, 1) if module is None else module
    records = torch.utils.data.TensorDataset(
        torch.from_numpy(data.train_x), torch.from_numpy(data.train_y)
    )
    make = inner or (lambda p: torch.optim.SGD(p, lr=0.5))
    found = torch.utils.data.DataLoader(
        records, **{"batch_size": batch_size, "shuffle": True, **loader}
    )
    return [module, make(module.parameters()), found]


def run(module: Any, optimizer: Any, loader: Any, *, epochs: int = 1) -> None:
    """An ordinary loop."""
    for _ in range(epochs):
        for x, y in loader:
            optimizer.zero_grad()
            torch.nn.functional.softplus(-module(x).squeeze(1) * (2 * y - 1)).mean().backward()
            optimizer.step()


@torch.no_grad()
def accuracy(module: Any, data: Dataset) -> float:
    return float(
        ((module(torch.from_numpy(data.test_x)).squeeze(1) > 0).numpy() == data.test_y).mean()
    )


def weights(module: Any) -> np.ndarray:
    return np.concatenate(
        [parameter.detach().float().numpy().ravel() for parameter in module.parameters()]
    )


@judges("training.accountant.Accountant.get_epsilon")
@pytest.mark.parametrize(
    ("settings", "inner"),
    [
        pytest.param({}, lambda p: torch.optim.SGD(p, lr=0.5), marks=pytest.mark.slow),
        ({"bits": 4}, lambda p: torch.optim.SGD(p, lr=0.5, momentum=0.9)),
        pytest.param(
            {"bits": 8, "neighboring": "replace_one"},
            lambda p: torch.optim.AdamW(p, lr=0.05),
            marks=pytest.mark.slow,
        ),
        ({"method": "rqp", "q": 0.999}, lambda p: torch.optim.SGD(p, lr=0.5)),
    ],
)
@pytest.mark.filterwarnings("ignore::mezzotint.training.projection.ContractionWarning")
@pytest.mark.filterwarnings("ignore::mezzotint.training.projection.DeadZoneWarning")
def test_a_script_learns_and_stays_within_its_target(
    blobs: Dataset, settings: dict[str, Any], inner: Any
) -> None:
    module, optimizer, loader, accountant = training.make_private(
        *parts(blobs, inner=inner), target_epsilon=4.0, delta=1e-5, epochs=4, seed=1, **settings
    )
    assert accountant.claim().epsilon == 0
    run(module, optimizer, loader, epochs=4)
    claim = accountant.claim()
    assert 3.99 < claim.epsilon <= 4
    assert claim.releases == len(accountant) == 4 * 10
    assert claim.neighboring == settings.get("neighboring", "add_or_remove_one")
    assert accountant.get_epsilon(1e-5) == claim.epsilon
    assert accuracy(module, blobs) > 0.9
    with pytest.raises(BudgetSpentError, match="40 planned"):
        run(module, optimizer, loader)
    assert accountant.claim() == claim


class _Interrupt:
    """Interrupts a function at the nth line that it comes to."""

    def __init__(self, function: Any, line: int) -> None:
        self._code = function.__code__
        self._left = line

    def __call__(self, frame: Any, event: str, _: object) -> Any:
        if frame.f_code is self._code and event == "line":
            self._left -= 1
            if self._left == 0:
                raise KeyboardInterrupt
        return self


def test_an_interrupt_forgets_no_step(blobs: Dataset) -> None:
    """At whichever line of the counting it comes."""
    module, optimizer, loader, accountant = training.make_private(
        *parts(blobs), noise_multiplier=1.0, delta=1e-5
    )
    run(module, optimizer, loader)
    counted = len(accountant)
    tracer = sys.gettrace()
    for line in itertools.count(1):
        sys.settrace(_Interrupt(type(accountant).step, line))
        try:
            accountant.step(noise_multiplier=1.0, sample_rate=accountant.sampling.rate)
            break
        except KeyboardInterrupt:
            pass
        finally:
            sys.settrace(tracer)
        assert len(accountant) >= counted
        counted = len(accountant)
    assert line > 3


def test_weights_stand_on_levels_and_biases_do_not(blobs: Dataset) -> None:
    module, optimizer, loader, _ = training.make_private(
        *parts(blobs), noise_multiplier=1.0, delta=1e-5, bits=3, bound=0.7
    )
    run(module, optimizer, loader)
    weight, bias = (parameter.detach().numpy() for parameter in module.parameters())
    assert np.abs(weight[..., None] - np.linspace(-0.7, 0.7, 8)).min(axis=-1).max() < SINGLE
    assert np.abs(bias - np.linspace(-0.7, 0.7, 8)).min() > SINGLE


def test_kappa_is_claimed_only_where_it_holds(blobs: Dataset) -> None:
    kappa = projection(bits=4, rounding="nearest", q=0.9).kappa
    for inner, expected in (
        (lambda p: torch.optim.SGD(p, lr=0.5), kappa),
        (lambda p: torch.optim.SGD(p, lr=0.5, momentum=0.9), 1.0),
        (lambda p: torch.optim.Adam(p), 1.0),
    ):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", TrainingWarning)
            module, optimizer, loader, accountant = training.make_private(
                *parts(blobs, inner=inner),
                target_epsilon=2.0,
                delta=1e-5,
                epochs=1,
                method="rqp",
                q=0.9,
            )
        plain = rqp.noise_multiplier(
            2.0, sampling_rate=accountant.sampling.rate, steps=10, delta=1e-5
        )
        assert optimizer.noise_multiplier == pytest.approx(expected * plain, rel=FEW)
        run(module, optimizer, loader)
        assert accountant.claim().release.mechanism.phases[0].kappa == expected
        assert accountant.claim().epsilon <= 2
    # A hook that comes later may remember gradients: the claim of the whole run then counts none of them as contracted.
    with pytest.warns(ContractionWarning):
        module, optimizer, loader, accountant = training.make_private(
            *parts(blobs), noise_multiplier=2.0, delta=1e-5, method="rqp", q=0.999
        )
    run(module, optimizer, loader)
    before = accountant.claim().epsilon
    optimizer.register_step_pre_hook(lambda *_: None)
    run(module, optimizer, loader)
    assert accountant.claim().release.mechanism.phases[0].kappa == 1.0
    assert accountant.claim().epsilon > before


def test_memory_loss_is_told_with_what_would_work(blobs: Dataset) -> None:
    def told(q: float) -> list[str]:
        with warnings.catch_warnings(record=True) as found:
            warnings.simplefilter("always")
            training.make_private(
                *parts(blobs), target_epsilon=2.0, delta=1e-5, epochs=20, method="rqp", q=q
            )
        told = [one for one in found if one.category is MemoryLossWarning]
        assert all(
            one.filename == __file__ for one in told
        )  # points at the script, not into the package
        return [str(one.message) for one in told]

    (text,) = told(0.9)
    assert told(float(text.split("at least ")[1].split(",")[0]) + 1e-6) == []


def test_infeasible_targets_say_what_would_work(blobs: Dataset) -> None:
    with pytest.raises(InfeasibleError, match="choose a larger target") as refused:
        training.make_private(*parts(blobs), target_epsilon=1e-5, delta=1e-9, epochs=400)
    least = float(str(refused.value).split("gives epsilon ")[1].split(";")[0])
    _, optimizer, _, _ = training.make_private(
        *parts(blobs), target_epsilon=1.01 * least, delta=1e-9, epochs=400
    )
    assert optimizer.noise_multiplier <= 2e4


def test_the_claim_follows_a_noise_schedule(blobs: Dataset) -> None:
    module, optimizer, loader, accountant = training.make_private(
        *parts(blobs), noise_multiplier=2.0, delta=1e-5
    )
    run(module, optimizer, loader)
    optimizer.noise_multiplier = 1.0
    run(module, optimizer, loader)
    rule = accountant.sampling
    phases = [rqp.Phase(noise_multiplier=z, kappa=1.0, sampling=rule, steps=10) for z in (2.0, 1.0)]
    assert (
        accountant.claim().epsilon
        == privacy.account(rqp.training_release(phases, delta=1e-5)).epsilon
    )
    optimizer.noise_multiplier = 0.0
    with pytest.raises(ParameterError, match="noise_multiplier"):
        run(module, optimizer, loader)
    state = accountant.state_dict()
    other = training.make_private(*parts(blobs), noise_multiplier=2.0, delta=1e-5)[3]
    other.load_state_dict(state)
    assert other.claim() == accountant.claim()


def test_an_old_state_does_not_forget_steps(blobs: Dataset) -> None:
    module, optimizer, loader, accountant = training.make_private(
        *parts(blobs), noise_multiplier=2.0, delta=1e-5
    )
    run(module, optimizer, loader)
    old = accountant.state_dict()
    run(module, optimizer, loader)
    claimed = accountant.claim()
    with pytest.raises(ParameterError, match="10 steps, 20 counted: released steps stay counted"):
        accountant.load_state_dict(old)
    quiet = {
        **old,
        "history": [(9.0, *old["history"][0][1:2], 30)],
    }  # more steps, but not those that were taken
    with pytest.raises(ParameterError, match="30 steps, 20 counted"):
        accountant.load_state_dict(quiet)
    assert accountant.claim() == claimed
    accountant.load_state_dict(accountant.state_dict())
    assert accountant.claim() == claimed
    run(module, optimizer, loader)
    assert len(accountant) == 30


def test_the_same_steps_as_the_trainer_s(blobs: Dataset) -> None:
    # Without noise to speak of, on whole batches: the module of the script ends where the trainer's does.
    module, optimizer, loader, accountant = training.make_private(
        *parts(blobs, batch_size=200, module=models.task("logreg", shape=(5,), classes=2).module),
        noise_multiplier=1e-9, delta=1e-5, max_grad_norm=0.5,
    )  # fmt: skip
    run(module, optimizer, loader, epochs=5)
    settings = trainer.TrainingSettings(steps=5, batch_size=200, step_size=0.5)
    task = models.task("logreg", shape=(5,), classes=2)
    taken = run_of(blobs, task, Method(noise_multiplier=1e-9), settings)
    for _ in range(5):
        taken.step()
    # Batches are whole; per-sample gradients of a mean and of a sum differ by rounding, some integers by one unit.
    np.testing.assert_allclose(weights(module), weights(task.module), atol=5 * 0.5 * 0.5 * 2.0**-15)
    assert len(accountant) == 5
    assert accountant.sampling.rate == 1.0


def test_seeded_scripts_repeat_and_say_what_they_are(blobs: Dataset) -> None:
    found = []
    for seed in (4, 4, 5, None, None):
        module, optimizer, loader, accountant = training.make_private(
            *parts(blobs), target_epsilon=2.0, delta=1e-5, epochs=1, bits=4, seed=seed
        )
        run(module, optimizer, loader)
        found.append(weights(module))
        assert str(accountant.claim()).startswith("Simulation; not private") == (seed is not None)
    assert np.array_equal(found[0], found[1])
    assert not np.array_equal(found[0], found[2])
    assert not np.array_equal(found[3], found[4])


def test_batches_are_poisson_samples(blobs: Dataset) -> None:
    _, _, loader, accountant = training.make_private(
        *parts(blobs, batch_size=2), noise_multiplier=1.0, delta=1e-5
    )
    sizes = [len(x) for x, _ in loader]
    assert len(sizes) == len(loader) == 100
    assert 0 in sizes  # whose records have the shape of the others
    assert sum(sizes) / 100 == pytest.approx(2, abs=0.9)  # six standard errors
    assert accountant.sampling.rate >= 0.01
    assert next(x for x, _ in loader if len(x) == 0).shape == (0, 5)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"epochs": None}, "epochs=None"),
        ({"noise_multiplier": 1.0}, "target_epsilon"),
        ({"target_epsilon": None}, "target_epsilon=None"),
        ({"method": "magic"}, "method=magic"),
        ({"method": "dp-sgd", "bits": 4}, "bits=4"),
        ({"q": 0.9}, "q=0.9"),
        ({"neighboring": "some"}, "neighboring=some"),
        ({"loss_reduction": "max"}, "loss_reduction=max"),
        ({"bits": 0}, "bits=0"),
        ({"method": "rqp", "q": 0.0}, "q=0"),
        ({"bits": 9}, "bits=9"),
        ({"delta": 0.0}, "delta=0"),
        ({"max_grad_norm": 0.0}, "clip_norm=0"),
        ({"target_epsilon": None, "noise_multiplier": 0.0}, "noise_multiplier=0"),
        ({"target_epsilon": math.nan}, "target_epsilon=nan"),
        ({"target_epsilon": math.inf}, "target_epsilon=inf"),
        ({"target_epsilon": "2"}, "target_epsilon='2'"),
    ],
)
def test_bad_settings(blobs: Dataset, change: dict[str, Any], named: str) -> None:
    settings = {"target_epsilon": 2.0, "delta": 1e-5, "epochs": 1, **change}
    with pytest.raises(ParameterError, match=named):
        training.make_private(*parts(blobs), **settings)


def test_what_cannot_be_made_private(blobs: Dataset) -> None:
    def call(*given: Any) -> Any:
        return training.make_private(*given, noise_multiplier=1.0, delta=1e-5)

    data = torch.utils.data
    module, optimizer, loader = parts(blobs)
    with pytest.raises(ParameterError, match="ModuleValidator"):
        call(
            *parts(
                blobs, module=torch.nn.Sequential(torch.nn.Linear(5, 4), torch.nn.BatchNorm1d(4))
            )
        )
    with pytest.raises(ParameterError, match="LBFGS"):
        call(module, torch.optim.LBFGS(module.parameters()), loader)
    with pytest.raises(ParameterError, match="the module does not have"):
        call(torch.nn.Linear(5, 1), optimizer, loader)
    for sampler in (
        data.WeightedRandomSampler([1.0] * 200, 200),
        data.SubsetRandomSampler(range(10)),
    ):
        with pytest.raises(ParameterError, match="every record as likely"):
            call(*parts(blobs, sampler=sampler, shuffle=None))
    with pytest.raises(ParameterError, match="batch_size"):
        call(module, optimizer, data.DataLoader(loader.dataset, batch_size=None))

    class Stream(data.IterableDataset):
        """Records without index."""

        def __iter__(self) -> Any:
            return iter([])

    # With epochs or bands the length of the data is asked for: the loader is looked at before.
    for given, named in ((Stream(), "IterableDataset"), (list(loader), "list")):
        batches = data.DataLoader(given) if named == "IterableDataset" else given
        target = {"target_epsilon": 2.0, "epochs": 1}
        for settings in ({"noise_multiplier": 1.0}, target, {**target, "noise": Banded()}):
            with pytest.raises(
                ParameterError, match=f"loader={named}: .*DataLoader over a map-style data set"
            ):
                training.make_private(module, optimizer, batches, delta=1e-5, **settings)
    module.requires_grad_(False)
    with pytest.raises(ParameterError, match="frozen"):
        call(module, optimizer, loader)
    private = call(*parts(blobs))
    with pytest.raises(ParameterError, match="private already"):
        call(private[0], *parts(blobs)[1:])


def test_accuracy_between_epochs_is_looked_at_without_gradients(blobs: Dataset) -> None:
    """As the page says; a pass with gradients that go nowhere makes Opacus's hooks refuse the next step."""
    module, optimizer, loader, _ = training.make_private(
        *parts(blobs), noise_multiplier=1.0, delta=1e-5
    )
    run(module, optimizer, loader)
    accuracy(module, blobs)
    run(module, optimizer, loader)
    module(torch.from_numpy(blobs.test_x))
    with pytest.raises(ParameterError, match=r"torch\.no_grad"):
        run(module, optimizer, loader)


@judges("training.accountant.Accountant.claim")
@pytest.mark.slow
@pytest.mark.parametrize("bits", [None, 4])
def test_the_claim_withstands_a_canary(bits: int | None) -> None:
    # 1000 scripts with and without one record whose gradient nobody shares; 99.9 % confidence.
    size, steps, scores = 8, 2, {}
    for canary in (True, False):
        features = np.zeros((20, size), dtype=np.float32)
        features[0] = 100.0 * canary
        found = []
        for seed in range(1000):
            module = torch.nn.Linear(size, 1, bias=False)
            torch.nn.init.zeros_(module.weight)
            loader = torch.utils.data.DataLoader(
                torch.utils.data.TensorDataset(torch.from_numpy(features)), batch_size=20
            )
            module, optimizer, loader, accountant = training.make_private(
                module, torch.optim.SGD(module.parameters(), lr=1.0), loader, noise_multiplier=1.0, delta=1e-2,
                bits=bits, bound=0.5, seed=seed + 10**6 * canary,
            )  # fmt: skip
            for _ in range(steps):
                for (x,) in loader:
                    optimizer.zero_grad()
                    (-module(x)).mean().backward()
                    optimizer.step()
            found.append(float(next(module.parameters()).detach().sum()))
        scores[canary] = np.array(found)
    threshold = float(np.quantile(np.concatenate([scores[True][:200], scores[False][:200]]), 0.6))
    proved = audit(
        scores[True][200:], scores[False][200:], threshold=threshold, delta=1e-2, confidence=0.999
    )
    assert 0.15 * accountant.claim().epsilon < proved.epsilon <= accountant.claim().epsilon
    assert math.isfinite(accountant.claim().epsilon)
    assert optimizers.NoisyOptimizer is type(optimizer)


def test_a_loop_of_ones_own_hears_no_remarks_of_torch(blobs: Dataset) -> None:
    """Opacus listens where no input needs a gradient, and torch remarks on it: nothing to act on."""
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        private = training.make_private(*parts(blobs), noise_multiplier=1.0, delta=1e-5, epochs=1)
        run(*private[:3])
    assert not [str(warning.message) for warning in heard if "hook" in str(warning.message)]


def test_a_sum_and_a_mean_of_the_same_losses_make_the_same_step(blobs: Dataset) -> None:
    """Both are divided by the expected batch size, whatever size the batch has."""
    trained: list[np.ndarray] = []
    for reduction in ("mean", "sum"):
        module, optimizer, loader, _ = training.make_private(
            *parts(blobs), noise_multiplier=1.0, delta=1e-5, seed=1, loss_reduction=reduction
        )
        x, y = next(iter(loader))
        losses = torch.nn.functional.softplus(-module(x).squeeze(1) * (2 * y - 1))
        getattr(losses, reduction)().backward()
        optimizer.step()
        trained.append(weights(module))
    # Rows of a mean are divided by the batch's size and multiplied again: units of the grid.
    np.testing.assert_allclose(*trained, atol=SINGLE)


def test_checkpoints_are_refused_where_torch_func_cannot_follow_them(blobs: Dataset) -> None:
    class Checkpointed(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.out = torch.nn.Linear(5, 1)

        def forward(self, x: Any) -> Any:
            return torch.utils.checkpoint.checkpoint(self.out, x, use_reentrant=False)

    module, _, loader, _ = training.make_private(
        *parts(blobs, module=Checkpointed()),
        noise_multiplier=1.0,
        delta=1e-5,
        grad_sample_mode="vmap",
    )
    with pytest.raises(ParameterError, match="checkpoint"):
        module.backward(lambda m, batch: m(batch[0]).square().mean(), next(iter(loader)))
