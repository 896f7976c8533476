"""The loop: what Opacus computes, levels, resumption, bad gradients, claims."""

from __future__ import annotations

import functools
import json
import math
import os
import subprocess
import sys
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from laws.registry import judges
from mezzotint import FileFormatError, ParameterError, families
from mezzotint.core import sampler
from mezzotint.datasets import Dataset
from mezzotint.training import batches, models, optimizers, rqp, trainer
from mezzotint.training.projection import (
    ContractionWarning,
    DeadZoneWarning,
    LeftOutWarning,
    MemoryLossWarning,
    TrainingWarning,
    projection,
    projection_from,
)
from mezzotint.vectors.gaussian import RoundedGaussian
from tolerances import SINGLE
from training.runs import Method, dying, make, run_of, watched_batches

torch = pytest.importorskip("torch")
pytest.importorskip("opacus")


def flat(run: Any) -> np.ndarray:
    """All weights of a run's module."""
    return np.concatenate(
        [parameter.detach().numpy().ravel() for parameter in run.task.module.parameters()]
    )


def noisy(**settings: Any) -> Any:
    """DP-SGD with a clip norm of 0.5."""
    return Method(**settings)


def test_a_step_is_the_clipped_sum_over_the_expected_batch_size(blobs: Dataset) -> None:
    # By hand: logistic gradients, clipped one by one, summed over the realised batch, divided by the expected 20.
    run = make(blobs, noisy(noise_multiplier=0.0), steps=3)
    weights, seen = np.zeros(6), watched_batches(run)
    for _ in range(3):
        run.step()
        x = np.hstack([blobs.train_x[seen[-1]], np.ones((len(seen[-1]), 1))])
        sign = 2 * blobs.train_y[seen[-1]] - 1
        gradients = -(sign / (1 + np.exp(sign * (x @ weights))))[:, None] * x
        norms = np.linalg.norm(gradients, axis=1, keepdims=True)
        weights -= (gradients * np.minimum(1, 0.5 / norms)).sum(axis=0) / 20
        # Rounding toward zero, to 2^-16 of the clip norm, of at most 40 records that are shortened by 2^-18 in a step;
        # gradients change by less than that when weights do.
        assert len(seen[-1]) <= 40
        error = 2 * len(seen) * 40 / 20 * 0.5 * (2.0**-16 + 2.0**-18)
        np.testing.assert_allclose(flat(run), weights, rtol=0, atol=error + 10 * SINGLE)
    assert len({len(batch) for batch in seen}) > 1


def test_accuracy_is_that_of_all_records_however_many_are_decided_at_a_time(
    blobs: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = make(blobs, noisy(noise_multiplier=0.0), steps=3)
    own_weights, untrained = flat(run), run.weights()
    run.run()
    trained = run.weights()
    features, labels = blobs.train_x[:20], blobs.train_y[:20].copy()
    labels[::3] = 1 - labels[::3]  # so that some are wrong
    singly = [
        run.accuracy(features[n : n + 1], labels[n : n + 1], trained) for n in range(len(labels))
    ]
    assert 0 < np.mean(singly) < 1
    monkeypatch.setattr(trainer, "DECIDED_TOGETHER", 7)
    final_weights = flat(run)
    assert run.accuracy(features, labels, trained) == np.mean(singly)
    run.accuracy(features, labels, untrained)
    assert run.task.module.training
    assert np.array_equal(flat(run), final_weights)
    assert not np.array_equal(final_weights, own_weights)


def test_noise_has_the_claimed_size(blobs: Dataset) -> None:
    # A model of zero features has gradient only in its bias: the weights' movement is noise alone,
    # eta z rho / m = 1 * 3 * 0.5 / 20 per coordinate. 2000 draws: off by more than 8 % has probability below 1e-6.
    still = replace(
        blobs,
        train_x=np.zeros((200, 400), dtype=np.float32),
        test_x=np.zeros((100, 400), dtype=np.float32),
    )
    run = make(still, noisy(noise_multiplier=3.0), steps=5)
    before, moves = flat(run), []
    for _ in range(5):
        run.step()
        moves.append((flat(run) - before)[:400])
        before = flat(run)
    assert np.std(moves) == pytest.approx(
        0.075, rel=0.08
    )  # 2000 draws: a standard error of .016, five times


@pytest.mark.filterwarnings("ignore::mezzotint.training.projection.TrainingWarning")
@pytest.mark.parametrize("rounding", ["nearest", "stochastic"])
@pytest.mark.parametrize("q", [1.0, 0.99])
def test_weights_stay_on_levels(blobs: Dataset, rounding: str, q: float) -> None:
    run = make(blobs, noisy(projection=projection(bits=3, rounding=rounding, q=q), bound=0.7))
    levels = np.linspace(-0.7, 0.7, 8)
    for _ in range(10):
        assert np.abs(flat(run)[:, None] - levels).min(axis=1).max() < SINGLE
        run.step()
    codes = run.optimizer.original_optimizer.codes
    np.testing.assert_allclose(
        levels[np.concatenate([code.ravel() for code in codes])], flat(run), atol=SINGLE
    )


def test_bounds_per_tensor(blobs: Dataset) -> None:
    run = make(blobs, noisy(projection=projection(bits=2), bound=(0.3, 2.0)))
    run.step()
    weight, bias = (parameter.detach().numpy() for parameter in run.task.module.parameters())
    assert (
        np.abs(np.abs(weight) / 0.3 * 3 - np.rint(np.abs(weight) / 0.3 * 3)).max() < 1e-5
    )  # 32-bit floats, times 10
    assert np.abs(bias).max() in (pytest.approx(2 / 3), pytest.approx(2.0))
    with pytest.raises(ParameterError, match="bounds"):
        make(blobs, noisy(projection=projection(bits=2), bound=(0.3,)))


def test_a_table_of_one_s_own_after_the_noise(blobs: Dataset) -> None:
    response = families.k_randomized_response(lower=-1.0, upper=1.0, levels=4, epsilon=4.0)
    run = make(blobs, noisy(projection=projection_from(response), bound=0.5))
    run.run()
    rate = run.sampling_rate
    plain = rqp.epsilon(1.0, sampling_rate=rate, steps=20, delta=1e-5).epsilon
    assert run.claim().epsilon < plain
    kappa = rqp.table_contraction(response)
    assert (
        run.claim().epsilon
        == rqp.epsilon(1.0 / kappa, sampling_rate=rate, steps=20, delta=1e-5).epsilon
    )


@judges("training.accountant.Accountant.claim_of")
def test_claim_counts_what_is_drawn(blobs: Dataset) -> None:
    with pytest.warns(ContractionWarning):
        run = make(blobs, noisy(projection=projection(bits=4, q=0.9), bound=0.5), steps=7)
    run.run()
    claim = run.claim()
    # 20/200 in multiples of 2^-64, rounded up, and up again to a float.
    assert 0.1 <= run.sampling_rate <= 0.1 + 2**-50
    assert (
        claim.epsilon
        == rqp.epsilon(
            1.0, q=0.9, bits=4, sampling_rate=run.sampling_rate, steps=7, delta=1e-5
        ).epsilon
    )
    assert claim.neighboring == "add_or_remove_one"
    assert run.claim(3).epsilon < claim.epsilon
    assert make(blobs, noisy(noise_multiplier=0.0)).claim() is None


def test_learning(blobs: Dataset) -> None:
    for model in ("logreg", "svm", "softmax"):
        run = make(blobs, noisy(), model=model, steps=60, averaging=0.5)
        assert run.run().test_accuracy > 0.97
        assert run.packed(bits=4).weights == run.coordinates


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"averaging": 0.6},
        {"optimizer": "adam", "schedule": "cosine", "step_size": 0.05},
        {"optimizer": "momentum"},
    ],
    ids=["plain", "averaged", "adam", "momentum"],
)
@pytest.mark.parametrize("quantized", [False, True])
def test_resumed_runs_end_in_the_same_weights(
    blobs: Dataset, tmp_path: Path, more: dict[str, Any], quantized: bool
) -> None:
    method = noisy(projection=projection(bits=4), bound=0.5) if quantized else noisy()
    whole = make(blobs, method, **more)
    whole.run()
    first = make(blobs, method, **more)
    place = tmp_path / "run.pt"

    class Killed(Exception):
        pass

    def kill(done: float, total: float) -> None:
        if (done, total) == (15, whole.settings.steps):
            raise Killed

    with pytest.raises(Killed):
        first.run(every=5, progress=kill, checkpoint=place)
    second = make(blobs, method, **more)
    trainer.restore(second, place)
    assert second.taken == 15
    second.run(every=5, checkpoint=place)
    for name, value in whole.weights().items():
        np.testing.assert_array_equal(value, second.weights()[name])
    assert second.claim().epsilon == whole.claim().epsilon


@pytest.mark.parametrize("schedule", trainer.SCHEDULES)
@pytest.mark.parametrize("kind", trainer.OPTIMIZERS)
def test_steps_are_those_of_pytorch_s_optimizer_and_schedule(
    blobs: Dataset, kind: str, schedule: str
) -> None:
    # A plain optimizer, given the same noisy gradients and PyTorch's own schedule, ends in the same weights.
    run = make(blobs, noisy(), steps=6, step_size=0.1, optimizer=kind, schedule=schedule)
    mine = list(run.task.module.parameters())
    other = [torch.nn.Parameter(parameter.detach().clone()) for parameter in mine]
    plain = {
        "sgd": lambda: torch.optim.SGD(other, lr=0.1),
        "momentum": lambda: torch.optim.SGD(other, lr=0.1, momentum=0.9),
        "adam": lambda: torch.optim.Adam(other, lr=0.1),
    }[kind]()
    schedulers = torch.optim.lr_scheduler
    rates = {
        "constant": lambda: schedulers.ConstantLR(plain, 1.0),
        "linear": lambda: schedulers.LinearLR(plain, 1.0, 1e-30, total_iters=6),
        "cosine": lambda: schedulers.CosineAnnealingLR(plain, 6),
    }[schedule]()
    for _ in range(6):
        run.step()
        for one, two in zip(mine, other, strict=True):
            two.grad = one.grad.clone()
        plain.step()
        rates.step()
        for one, two in zip(mine, other, strict=True):
            # Rates differ by rounding alone.
            np.testing.assert_allclose(one.detach(), two.detach(), rtol=1e-5, atol=1e-6)
    assert run.optimizer.contraction == 1.0


def test_replaced_codes_are_claimed_around_plain_sgd_only(blobs: Dataset) -> None:
    contracted = noisy(projection=projection(bits=4, q=0.9), bound=0.5)
    found = []
    for kind in ("sgd", "adam"):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", TrainingWarning)
            run = make(blobs, contracted, steps=3, optimizer=kind)
        run.run()
        found.append(run.claim().epsilon)
    assert found[0] < found[1]


def lines(place: Path) -> list[dict[str, Any]]:
    """What a checkpoint's ledger says, line after line."""
    return [
        json.loads(line)
        for line in trainer.ledger_path(place).read_text(encoding="ascii").splitlines()[1:]
    ]


def reserved(place: Path) -> list[int]:
    """Steps counted as spent."""
    return [line["reserved"] for line in lines(place)]


def test_lost_steps_are_paid_for(blobs: Dataset, tmp_path: Path) -> None:
    # Without a seed the steps between checkpoint and crash were drawn with other noise: they count as well.
    place = tmp_path / "run.pt"
    run = make(blobs, noisy(), seed=None)
    run.run(every=10, checkpoint=tmp_path / "whole.pt")
    assert reserved(tmp_path / "whole.pt") == [10, 20]
    first = make(blobs, noisy(), seed=None)
    dying(first, after=13)
    with pytest.raises(KeyboardInterrupt):
        first.run(every=8, checkpoint=place)
    second = make(blobs, noisy(), seed=None)
    trainer.restore(second, place)
    assert (second.taken, second.spent) == (8, 16)
    second.run(checkpoint=place)
    assert (second.taken, second.spent) == (20, 28)
    assert reserved(place) == [8, 16, 28]
    assert second.claim().epsilon > run.claim().epsilon


def test_a_run_started_anew_over_its_checkpoint_is_a_second_attempt(
    blobs: Dataset, tmp_path: Path
) -> None:
    place = tmp_path / "run.pt"
    for attempt in (1, 2):
        run = make(blobs, noisy(), seed=None)
        run.run(checkpoint=place)
        assert (run.taken, run.spent) == (20, 20 * attempt)
    with pytest.raises(FileFormatError, match="another run"):
        make(blobs, noisy(noise_multiplier=2.0), seed=None).run(checkpoint=place)
    # Seeded, the same noise is drawn: the same steps.
    for _ in range(2):
        run = make(blobs, noisy(), seed=3)
        run.run(checkpoint=tmp_path / "seeded.pt")
        assert run.spent == 20


def test_two_processes_on_one_checkpoint_pay_for_both(blobs: Dataset, tmp_path: Path) -> None:
    place = tmp_path / "run.pt"
    make(blobs, noisy(), seed=None, steps=4).run(checkpoint=tmp_path / "other.pt")
    runs = [make(blobs, noisy(), seed=None) for _ in range(2)]
    ledgers = [trainer.StepLedger(run, place) for run in runs]
    assert [ledger.reserve(5) for ledger in (*ledgers, ledgers[0])] == [5, 5, 5]
    assert reserved(place) == [5, 10, 15]
    assert [run.spent for run in runs] == [10, 5]


@judges(
    "training.trainer.Trainer.claim",
    "training.trainer.Trainer.standing",
    "training.trainer.Trainer.run",
)
@pytest.mark.parametrize("killed", [0, 7])
def test_a_target_is_never_exceeded_however_often_the_run_dies(
    blobs: Dataset, tmp_path: Path, killed: int
) -> None:
    place = tmp_path / "run.pt"
    target = make(blobs, noisy(), seed=None).claim(20).epsilon
    lost = 0
    if killed:
        first = make(blobs, noisy(), seed=None)
        dying(first, after=killed)
        with pytest.raises(KeyboardInterrupt):
            first.run(every=5, checkpoint=place, target_epsilon=target)
        lost = 5
    second = make(blobs, noisy(), seed=None)
    if killed:
        trainer.restore(second, place)
    second.run(every=5, checkpoint=place, target_epsilon=target)
    assert second.claim().epsilon <= target
    assert (second.taken, second.spent) == (20 - lost, 20)
    assert bool(second.stopped) == bool(killed)
    assert lines(place)[-1]["claim"]["epsilon"] <= target


def test_part_of_a_block_is_taken_where_the_whole_does_not_fit(blobs: Dataset) -> None:
    third = make(blobs, noisy(), seed=None)
    third.run(every=6, target_epsilon=third.claim(9).epsilon)
    assert (third.taken, third.spent) == (9, 9)
    assert "one more would exceed" in third.stopped
    fourth = make(blobs, noisy(), seed=None)
    fourth.run(target_epsilon=fourth.claim(1).epsilon / 2)
    assert (fourth.taken, fourth.spent) == (0, 0)


def test_no_generator_state_is_written(blobs: Dataset, tmp_path: Path) -> None:
    run = make(blobs, noisy(), seed=None)
    run.step()
    trainer.save(run, tmp_path / "run.pt")
    state = torch.load(tmp_path / "run.pt", weights_only=True)
    assert set(state) == {
        "schema",
        "identity",
        "taken",
        "spent",
        "draws",
        "weights",
        "averaged",
        "optimizer",
    }
    assert (tmp_path / "run.pt").stat().st_size < torch.Generator().get_state().numel()


def test_damaged_or_foreign_checkpoints_are_refused(blobs: Dataset, tmp_path: Path) -> None:
    place = tmp_path / "run.pt"
    run = make(blobs, noisy())
    run.run(checkpoint=place)
    with pytest.raises(ParameterError, match="other settings"):
        trainer.restore(make(blobs, noisy(noise_multiplier=2.0)), place)
    with pytest.raises(ParameterError, match="taken"):
        trainer.restore(run, place)
    ledger = trainer.ledger_path(place)
    text = ledger.read_text(encoding="utf-8")
    ledger.write_text(text.replace('"reserved":20', '"reserved":10'), encoding="utf-8")
    with pytest.raises(FileFormatError, match="ledger"):
        trainer.restore(make(blobs, noisy()), place)
    for gone in (ledger.unlink, ledger.touch):
        gone()
        with pytest.raises(FileFormatError, match="what was spent is not known"):
            trainer.restore(make(blobs, noisy()), place)
    place.write_bytes(place.read_bytes()[:100])
    with pytest.raises(FileFormatError, match="checkpoint"):
        trainer.restore(make(blobs, noisy()), place)
    with pytest.raises(ParameterError, match="no such file"):
        trainer.restore(make(blobs, noisy()), tmp_path / "other.pt")


def spoil_first_record(run: Any, *, after: int) -> None:
    """The loss of the first record of each batch becomes NaN from a step on."""
    losses = run.task.losses

    def spoiled(outputs: Any, labels: Any) -> Any:
        first = torch.arange(len(labels)) == 0
        return losses(outputs, labels) * torch.where(first & (run.taken >= after), math.nan, 1.0)

    run.task = replace(run.task, losses=spoiled)


def test_a_weight_that_is_not_finite_stops_the_run(blobs: Dataset, tmp_path: Path) -> None:
    run = make(blobs, noisy(projection=projection(bits=4), bound=0.5), steps=50)
    step = run.step

    def spoiled() -> None:
        if run.taken == 12:
            next(run.task.module.parameters()).data.fill_(math.nan)
        step()

    run.step = spoiled
    with (
        pytest.raises(optimizers.NotFiniteError, match=r"step 13 of 50.*13 steps are spent"),
        pytest.warns(LeftOutWarning),
    ):
        run.run(every=5, checkpoint=tmp_path / "run.pt")
    facts = lines(tmp_path / "run.pt")[-1]
    assert facts["reserved"] == 15
    assert facts["claim"]["epsilon"] >= run.claim().epsilon


def test_a_record_that_is_not_finite_tells_nothing(blobs: Dataset) -> None:
    # A run that stopped for it would be a release without noise. Without noise here: the record counts as zero.
    run = make(blobs, noisy(noise_multiplier=0.0), steps=5)
    spoil_first_record(run, after=3)
    with pytest.warns(LeftOutWarning, match="1 record"):
        run.run()
    assert run.taken == 5
    assert np.isfinite(flat(run)).all()


def test_empty_batches_are_steps(blobs: Dataset) -> None:
    few = replace(blobs, train_x=blobs.train_x[:40], train_y=blobs.train_y[:40])
    task = models.task("logreg", shape=(5,), classes=2)
    settings = trainer.TrainingSettings(steps=60, batch_size=1, step_size=0.1)
    run = run_of(few, task, noisy(), settings, seed=3)
    run.run()
    assert run.spent == 60  # about 60 / e of them without a record
    assert np.isfinite(flat(run)).all()


def test_warnings(blobs: Dataset) -> None:
    near = projection(bits=1, rounding="nearest")
    with pytest.warns(DeadZoneWarning, match="stochastic"):
        make(blobs, noisy(projection=near, bound=5.0), steps=1).run()
    with pytest.warns(ContractionWarning), pytest.warns(MemoryLossWarning, match="afresh"):
        make(blobs, noisy(projection=projection(bits=4, q=0.9), bound=0.5), steps=30).run()
    for category in (DeadZoneWarning, MemoryLossWarning, ContractionWarning):
        assert issubclass(category, TrainingWarning)
    # Rounding without bias warns of nothing.
    make(blobs, noisy(projection=projection(bits=1), bound=5.0), steps=1).run()


@pytest.mark.parametrize(
    ("module", "losses", "named"),
    [
        (
            lambda: torch.nn.Linear(4, 2),
            None,
            r"model=Linear: records .* \(5,\), which it does not",
        ),
        (lambda: torch.nn.Linear(5, 1), None, "task=Linear: its outputs do not fit the 2 classes"),
        (
            lambda: torch.nn.Linear(5, 2),
            torch.nn.functional.cross_entropy,
            "losses=Linear: need one",
        ),
    ],
    ids=["inputs", "outputs", "mean"],
)
def test_a_task_that_does_not_fit_the_data_spends_nothing(
    blobs: Dataset, module: Any, losses: Any, named: str
) -> None:
    each = functools.partial(torch.nn.functional.cross_entropy, reduction="none")
    task = models.Task(
        module=module(), losses=losses or each, decide=lambda outputs: outputs.argmax(dim=1)
    )
    settings = trainer.TrainingSettings(steps=3, batch_size=20, step_size=0.5)
    with pytest.raises(ParameterError, match=named):
        run_of(blobs, task, noisy(), settings)


def test_convolutional_network(tmp_path: Path) -> None:
    rng = np.random.default_rng(4)
    labels = rng.integers(0, 3, 120)
    images = rng.random((120, 28, 28)).astype(np.float32) * 0.2
    for index, label in enumerate(labels):
        images[index, 8 * label : 8 * label + 8] += 0.8
    data = Dataset(
        name="stripes",
        train_x=images[:90],
        train_y=labels[:90],
        test_x=images[90:],
        test_y=labels[90:],
        classes=3,
    )
    task = models.task("cnn", shape=(28, 28), classes=3)
    bounds = tuple(2 * float(p.detach().abs().max()) for p in task.module.parameters())
    method = noisy(
        noise_multiplier=0.05, clip_norm=1.0, projection=projection(bits=8), bound=bounds
    )
    settings = trainer.TrainingSettings(steps=40, batch_size=30, step_size=0.5)
    run = run_of(data, task, method, settings, seed=5)
    assert run.run().test_accuracy > 0.9
    packed = run.packed(bits=8)
    assert packed.packed_bytes * 4 == packed.float_bytes
    loaded = type(packed).load(tmp_path / "m") if packed.save(tmp_path / "m") else packed
    for name, value in run.weights().items():
        np.testing.assert_allclose(loaded.values()[name], value, rtol=SINGLE)


@pytest.mark.parametrize(("poisson", "mode"), [(True, "hooks"), (False, "hooks"), (True, "ghost")])
def test_projection_works_under_opacus_s_own_engine(
    blobs: Dataset, poisson: bool, mode: str
) -> None:
    opacus = pytest.importorskip("opacus")
    module = torch.nn.Linear(5, 1)
    found = torch.utils.data.TensorDataset(
        torch.from_numpy(blobs.train_x), torch.from_numpy(blobs.train_y)
    )
    inner = torch.optim.SGD(module.parameters(), lr=0.5)
    wrapped = optimizers.ProjectedOptimizer(inner, projection=projection(bits=4), bounds=0.5)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Opacus and torch remark on secure_mode and on hooks
        # With ghost clipping the engine also wraps the loss, which goes through the module twice.
        criterion = torch.nn.BCEWithLogitsLoss()
        private, optimizer, *wrapped_loss, loader = opacus.PrivacyEngine().make_private(
            module=module,
            optimizer=wrapped,
            data_loader=torch.utils.data.DataLoader(found, batch_size=20),
            noise_multiplier=0.5,
            max_grad_norm=0.5,
            poisson_sampling=poisson,
            grad_sample_mode=mode,
            criterion=criterion,
        )
        assert len(wrapped_loss) == (mode == "ghost")
        criterion = wrapped_loss[0] if wrapped_loss else criterion
        for x, y in loader:
            optimizer.zero_grad()
            criterion(private(x).squeeze(1), y.float()).backward()
            optimizer.step()
            weights = np.concatenate(
                [parameter.detach().numpy().ravel() for parameter in module.parameters()]
            )
            assert np.abs(weights[:, None] - np.linspace(-0.5, 0.5, 16)).min(axis=1).max() < SINGLE
    assert (
        float(
            ((module(torch.from_numpy(blobs.test_x)).squeeze(1) > 0).numpy() == blobs.test_y).mean()
        )
        > 0.9
    )


def test_unseeded_runs_differ(blobs: Dataset) -> None:
    first, second = make(blobs, noisy(), seed=None), make(blobs, noisy(), seed=None)
    for run in (first, second):
        run.step()
    assert not np.array_equal(flat(first), flat(second))


def test_unseeded_draws_take_keys_of_256_bits(
    blobs: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    # PyTorch's generator keeps 32 bits of a seed. Every batch, noise and table has a key of its own instead.
    given: list[bytes] = []

    def watched() -> bytes:
        given.append(os.urandom(sampler.KEY_BYTES))
        return given[-1]

    monkeypatch.setattr(sampler, "fresh_key", watched)
    monkeypatch.setattr(torch.Tensor, "normal_", None)
    monkeypatch.setattr(torch, "normal", None)
    run = make(blobs, noisy(projection=projection(bits=4), bound=0.5), seed=None, steps=3)
    for _ in range(3):
        run.step()
    assert (
        len(set(given)) == len(given) == 1 + 3 * 3
    )  # the first projection, then three draws a step
    assert all(len(key) == 32 for key in given)


def test_what_torch_s_seed_is_does_not_matter(blobs: Dataset) -> None:
    first, second = make(blobs, noisy(), seed=None), make(blobs, noisy(), seed=None)
    for run in (first, second):
        torch.manual_seed(0)
        run.step()
    assert not np.array_equal(flat(first), flat(second))


def test_what_is_released_is_integers_on_a_public_grid(blobs: Dataset) -> None:
    run = make(blobs, noisy(), seed=None)
    grid = 0.5 / 2**16
    for _ in range(3):
        run.step()
        moved = (
            np.concatenate([parameter.grad.numpy().ravel() for parameter in run.optimizer.params])
            * 20
            / grid
        )
        np.testing.assert_allclose(
            moved, np.rint(moved), rtol=2.0**-20, atol=0
        )  # 16 roundings of 32-bit floats


def test_the_noise_is_the_one_that_is_accounted(blobs: Dataset) -> None:
    # A seeded step is the integer sum plus the rounded Gaussian of z units, no more and no less.
    quiet, loud = make(blobs, noisy(noise_multiplier=0.0)), make(blobs, noisy(noise_multiplier=1.7))
    for run in (quiet, loud):
        run.step()
    key = sampler.key_from(batches.Draws(1)("noise"))
    drawn = RoundedGaussian(sigma=1.7 * 2**16).draw(key, 6) * (0.5 / 2**16) / 20
    np.testing.assert_allclose(flat(quiet) - drawn, flat(loud), atol=SINGLE)


def test_a_seeded_run_says_so_wherever_its_claim_stands(blobs: Dataset, tmp_path: Path) -> None:
    for seed in (1, None):
        run, place = make(blobs, noisy(), seed=seed, steps=2), tmp_path / f"run{seed}"
        last = run.run(checkpoint=place)
        for sentence in (run.sentence(), lines(place)[-1]["sentence"]):
            assert sentence.startswith("Simulation; not private") == (seed is not None)
            assert "differential privacy" in sentence
        assert last.seeded == run.seeded == (seed is not None)
    run = make(blobs, noisy(), steps=2)
    run.run()
    assert str(run.claim()).startswith("Simulation; not private")
    assert run.claim().as_dict()["seeded"] is True
    assert make(blobs, noisy(), seed=None).claim(1).as_dict()["seeded"] is False


def test_gradients_are_used_once(blobs: Dataset) -> None:
    # Without zero_grad a record of the last step would count in this one too.
    run = make(blobs, noisy())
    run.step()
    with pytest.raises(ValueError, match="zero_grad"):
        run.optimizer.step()


def test_bad_settings(blobs: Dataset) -> None:
    with pytest.raises(ParameterError, match="steps=0"):
        trainer.TrainingSettings(steps=0, batch_size=1, step_size=1.0)
    for change in ({"optimizer": "adagrad"}, {"schedule": "steps"}):
        with pytest.raises(ParameterError, match="use one of"):
            trainer.TrainingSettings(steps=1, batch_size=1, step_size=1.0, **change)  # type: ignore[arg-type]
    with pytest.raises(ParameterError, match="averaging=2"):
        trainer.TrainingSettings(steps=1, batch_size=1, step_size=1.0, averaging=2.0)
    with pytest.raises(ParameterError, match="neighboring=some"):
        make(blobs, noisy(), neighboring="some")
    for wrong in (-1.0, math.inf, math.nan):
        with pytest.raises(ParameterError, match=f"noise_multiplier={wrong:g}"):
            make(blobs, noisy(noise_multiplier=wrong))
    with pytest.raises(ParameterError, match="clip_norm=inf"):
        make(blobs, noisy(clip_norm=math.inf))
    with pytest.raises(ParameterError, match="model=tree"):
        models.task("tree", shape=(5,), classes=2)
    with pytest.raises(ParameterError, match="model=logreg"):
        models.task("logreg", shape=(5,), classes=3)
    with pytest.raises(ParameterError, match="model=cnn"):
        models.task("cnn", shape=(5,), classes=3)
    task = models.task("logreg", shape=(5,), classes=2)
    large = trainer.TrainingSettings(steps=1, batch_size=500, step_size=1.0)
    with pytest.raises(ParameterError, match="batch_size=500"):
        run_of(blobs, task, noisy(), large)
    run = make(blobs, noisy(), steps=1)
    run.step()
    with pytest.raises(ParameterError, match="all steps are taken"):
        run.step()


def test_without_the_extra_the_remedy_is_named() -> None:
    code = (
        "import sys\n"
        "class Missing:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name.split('.')[0] in ('torch', 'opacus'): raise ModuleNotFoundError(name)\n"
        "sys.meta_path.insert(0, Missing())\n"
        "from mezzotint.datasets import Dataset\n"
        "from mezzotint.training import audit, packed, projection, rqp\n"
        "print(rqp.contraction(0.5, 4))\n"
        "print(rqp.epsilon(1.0, q=0.5, bits=4, sampling_rate=0.1, steps=3, delta=1e-5))\n"
        "projection.projection(bits=4, q=0.9), audit.audit([1.0], [0.0], threshold=0.5)\n"
        "packed.PackedModel, Dataset\n"
        "assert not {'torch', 'opacus'} & set(sys.modules)\n"
        "try:\n    import mezzotint.training.trainer\n"
        "except ImportError as error: print(error)\n"
    )
    out = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True
    ).stdout
    assert "0.636" in out
    assert "differential privacy" in out
    assert "pip install '.[torch]'" in out
