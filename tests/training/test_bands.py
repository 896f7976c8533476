"""Correlated noise: what it costs by enumeration, what is left of it, and scripts that use it."""

from __future__ import annotations

import copy
import itertools
import json
import math
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import norm

from laws.registry import judges
from mezzotint import ParameterError, privacy
from mezzotint.datasets import Dataset
from mezzotint.privacy.accounting import prove
from mezzotint.training import rqp
from mezzotint.training.projection import projection
from tolerances import FEW, MANY

torch = pytest.importorskip("torch")
pytest.importorskip("opacus")

from mezzotint import training  # noqa: E402 - the room needs the extra
from mezzotint.cli.application import run as verb  # noqa: E402
from mezzotint.training import (  # noqa: E402
    Banded,
    Fresh,
    noise as noises,
    trainer,
)
from mezzotint.vectors import rotation as toeplitz  # noqa: E402
from training.flat import run_words  # noqa: E402
from training.runs import Method, dying, make, watched_batches  # noqa: E402


def matrix(bands: int, steps: int) -> np.ndarray:
    """C in full, columns of norm at most 1."""
    given = toeplitz.coefficients(bands)
    return sum(np.eye(steps, k=-j) * value for j, value in enumerate(given)) / toeplitz.SCALE


@pytest.mark.parametrize("bands", [1, 2, 3, 8, 64])
def test_coefficients_fall_and_their_norm_is_at_most_one(bands: int) -> None:
    found = toeplitz.coefficients(bands)
    assert sum(value * value for value in found) <= toeplitz.SCALE**2
    assert np.sqrt(sum(value * value for value in found)) > toeplitz.SCALE - math.sqrt(bands)
    assert all(first >= second > 0 for first, second in itertools.pairwise(found))
    # (1 - x)^(-1/2) squared is 1 / (1 - x): its coefficients convolve to ones.
    exact = np.array(found) / found[0]
    np.testing.assert_allclose(np.convolve(exact, exact)[:bands], 1, atol=bands * 2 / found[0])
    for bad in (0, 65):
        with pytest.raises(ParameterError, match="bands"):
            toeplitz.coefficients(bad)


@pytest.mark.parametrize("bands", [1, 2, 4, 8])
def test_noise_of_the_last_iterate_is_that_of_the_full_matrix(bands: int) -> None:
    inverse = np.linalg.inv(matrix(bands, 30))
    assert toeplitz.last_noise(bands, 30) == pytest.approx(
        np.linalg.norm(inverse.sum(axis=0)), rel=MANY
    )
    # Math note: .743 of the noise at 600 steps, where eight bands need 1.471 in the place of .833.
    if bands == 8:
        left = 1.471 / 0.833 * toeplitz.last_noise(8, 600) / toeplitz.last_noise(1, 600)
        assert left == pytest.approx(0.743, abs=0.005)  # coefficients are rounded to 1/256


def test_solutions_are_the_sums_where_there_is_no_noise() -> None:
    rng, drawn = np.random.default_rng(0), [0]
    noise = noises.CorrelatedNoise(4, lambda: drawn[0])
    sums, released = rng.integers(-(2**30), 2**30, (9, 5)), []
    for t, one in enumerate(sums):
        drawn[0] += 1
        noise.check("same")
        mixed = noise.mix(one)
        np.testing.assert_array_equal(
            mixed, sum(c * sums[t - j] for j, c in enumerate(toeplitz.coefficients(4)) if t >= j)
        )
        mixed = mixed + rng.integers(-1000, 1000, 5)
        released.append(mixed)
        solved = noise.solve(mixed)
        expected = np.linalg.solve(
            matrix(4, 9)[: t + 1, : t + 1] * toeplitz.SCALE, np.array(released, dtype=float)
        )
        np.testing.assert_allclose(
            solved, expected[t], rtol=1e-9, atol=1e-3
        )  # of numbers near 2^30


AXIS = np.arange(-5.5, 5.5001, 0.11)
RATE, LOUD = 0.4, 1.3


def densities(
    coins: Any, gradients: tuple[Any, Any, Any], spread: tuple[float, float]
) -> np.ndarray:
    """Density of three released numbers, summed over the coins of a record, beside another record that answers them.

    coins: chance of every triple of the record's coins; gradients: the record's in each step, given what was released.
    """
    first, second = spread
    y0, y1, y2 = AXIS[:, None, None], AXIS[None, :, None], AXIS[None, None, :]
    other = np.cos(3 * y0)  # of the record that is alone in the other part, in the second step
    total = np.zeros((AXIS.size,) * 3)
    given = gradients[0], gradients[1](y0), gradients[2](y0, y1)
    for (a, b, c), chance in coins.items():
        x0, x1, x2 = a * given[0], b * given[1] + other, c * given[2]
        one = norm.pdf(LOUD * (y0 - first * x0)) * norm.pdf(LOUD * (y1 - first * x1 - second * x0))
        total = total + chance * one * norm.pdf(LOUD * (y2 - first * x2 - second * x1))
    return total * (LOUD * 0.11) ** 3


def product(kinds: tuple[float, ...], shifts: tuple[float, float], ratio: float) -> float:
    """H of two independent sampled Gaussian steps, of a record with these signs against none or the opposite."""
    wide = np.arange(-9, 9.001, 0.03)

    def mixture(shift: float) -> np.ndarray:
        return ((1 - RATE) * norm.pdf(wide) + RATE * norm.pdf(wide - LOUD * shift)) * 0.03

    p, q = (np.outer(*(mixture(sign * shift) for shift in shifts)) for sign in kinds)
    return float(np.maximum(p - ratio * q, 0).sum())


@judges("training.accountant.Accountant.claim")
@pytest.mark.parametrize("ratio", [0.7, 1.0, 1.5, 2.5])
def test_steps_of_correlated_noise_cost_what_blocks_cost(ratio: float) -> None:
    # Two bands, three steps: a record of the first part may take part in the first and in the third. Its gradients, and
    # those of another record, answer to what was released.
    c = np.array(toeplitz.coefficients(2)) / toeplitz.SCALE
    spread, shifts = (float(c[0]), float(c[1])), (float(np.hypot(*c)), float(c[0]))
    coins = {
        (a, 0, b): (RATE if a else 1 - RATE) * (RATE if b else 1 - RATE)
        for a in (0, 1)
        for b in (0, 1)
    }

    def answers(sign: int) -> tuple[Any, Any, Any]:
        return (
            sign,
            lambda y0: 0.0,
            lambda y0, y1: sign * np.where(np.sin(2 * y0 + y1) > 0, 1.0, -1.0),
        )

    there, gone = (
        densities(coins, answers(1), spread),
        densities({(0, 0, 0): 1.0}, answers(1), spread),
    )
    swapped = densities(coins, answers(-1), spread)
    for p, q, kinds in ((there, gone, (1, 0)), (gone, there, (0, 1)), (there, swapped, (1, -1))):
        found = float(np.maximum(p - ratio * q, 0).sum())
        # Sums over the grid for integrals: as good as its step squared.
        assert found <= product(kinds, (1.0, 1.0), ratio) + 1e-4
        # Answers change nothing: the cost is that of the two blocks, the second of which the end cuts short. Mass
        # beyond the axis, and the grid at the events' edges.
        assert found == pytest.approx(product(kinds, shifts, ratio), abs=4e-3)


def test_a_record_in_overlapping_blocks_would_cost_more() -> None:
    # What the optimizer refuses: the same record in two steps in a row.
    c = np.array(toeplitz.coefficients(2)) / toeplitz.SCALE
    coins = {
        (a, b, 0): (RATE if a else 1 - RATE) * (RATE if b else 1 - RATE)
        for a in (0, 1)
        for b in (0, 1)
    }
    gradients = 1, lambda y0: 1.0, lambda y0, y1: 0.0
    there = densities(coins, gradients, (float(c[0]), float(c[1])))
    gone = densities({(0, 0, 0): 1.0}, gradients, (float(c[0]), float(c[1])))
    assert float(np.maximum(there - 2.5 * gone, 0).sum()) > product((1, 0), (1.0, 1.0), 2.5) + 0.01


def parts(data: Dataset, *, batch_size: int = 20, **loader: Any) -> tuple[Any, Any, Any]:
    torch.manual_seed(0)
    module = torch.nn.Linear(5, 1)
    x, y = torch.from_numpy(data.train_x), torch.from_numpy(data.train_y)
    records = torch.utils.data.TensorDataset(x, y, torch.arange(len(x)))
    made = torch.utils.data.DataLoader(records, batch_size=batch_size, **loader)
    return module, torch.optim.SGD(module.parameters(), lr=0.5, momentum=0.5), made


def run(module: Any, optimizer: Any, loader: Any, epochs: int = 1) -> list[set[int]]:
    """Trains; the records of each batch."""
    seen = []
    for _ in range(epochs):
        for x, y, names in loader:
            seen.append(set(names.tolist()))
            optimizer.zero_grad()
            torch.nn.functional.softplus(-module(x).squeeze(1) * (2 * y - 1)).mean().backward()
            optimizer.step()
    return seen


@pytest.mark.parametrize("bits", [None, 4])
def test_a_script_with_bands(blobs: Dataset, bits: int | None) -> None:
    module, optimizer, loader, accountant = training.make_private(
        *parts(blobs), target_epsilon=3.0, delta=1e-5, epochs=3, bits=bits, noise=Banded(4), seed=1
    )
    seen = run(module, optimizer, loader, epochs=3)
    assert len(seen) == len(accountant) == 30
    assert 10 < np.mean([len(one) for one in seen]) < 30
    # Batches that lie fewer than four steps apart are disjoint; those four steps apart come from the same part.
    for gap in range(1, 5):
        shared = sum(len(first & second) for first, second in zip(seen, seen[gap:], strict=False))
        assert (shared > 0) == (gap == 4)
    claim = accountant.claim()
    assert 2.99 < claim.epsilon <= 3
    assert claim.releases == 30
    assert "correlated over 4 steps" in str(claim)
    phase = rqp.Phase(
        noise_multiplier=optimizer.noise_multiplier,
        kappa=1.0,
        sampling=rqp.Poisson(rate=0.4),
        steps=8,
    )  # 30 steps, one in four
    assert claim.epsilon == pytest.approx(
        privacy.account(rqp.training_release([phase], delta=1e-5)).epsilon, rel=1e-6
    )
    with torch.no_grad():
        right = (
            (module(torch.from_numpy(blobs.test_x)).squeeze(1) > 0).numpy() == blobs.test_y
        ).mean()
    assert right > 0.9
    assert prove(claim.release)[1] is None


def test_what_bands_do_not_go_with(blobs: Dataset) -> None:
    def call(*given: Any, bands: Any = 4, **more: Any) -> Any:
        settings = {"noise_multiplier": 1.0, "delta": 1e-5, "noise": Banded(bands), **more}
        return training.make_private(*given, **settings)

    for given, settings, words in (
        (parts(blobs), {"method": "rqp", "q": 0.9}, "replaced codes"),
        (parts(blobs), {"bands": 11}, "10 is the most"),
        (parts(blobs), {"bands": 0}, "bands=0"),
        (parts(blobs), {"bands": "auto"}, "target_epsilon"),
        (parts(blobs, num_workers=1), {}, "num_workers=0"),
    ):
        with pytest.raises(ParameterError, match=words):
            call(*given, **settings)
    module, optimizer, loader, accountant = call(*parts(blobs))
    next(iter(loader))  # a batch that no step is made with
    with pytest.raises(ParameterError, match="batch 2 after 0"):
        run(module, optimizer, loader)
    assert len(accountant) == 0
    module, optimizer, loader, accountant = call(*parts(blobs))
    run(module, optimizer, loader)
    with pytest.raises(ParameterError, match="copies"):
        copy.deepcopy(optimizer)
    optimizer.noise_multiplier = 2.0
    with pytest.raises(ParameterError, match="stay what they were"):
        run(module, optimizer, loader)
    assert len(accountant) == 10
    # A run that goes on begins new blocks, which are counted beside the old ones: 3 and 1.
    module, optimizer, loader, again = call(*parts(blobs))
    again.load_state_dict(accountant.state_dict())
    run(module, optimizer, [next(iter(loader))])
    assert [steps for _, _, steps in again.history] == [10, 1]
    (first, second) = again.claim().release.mechanism.phases
    assert (first.participations, second.participations) == (3, 1)
    with pytest.raises(ParameterError, match="bands=1"):
        call(*parts(blobs), noise=Fresh())[3].load_state_dict(accountant.state_dict())


def budget(target: float, **run: int) -> noises.Budget:
    """Of a planned run."""
    return noises.Budget(target_epsilon=target, delta=1e-5, neighboring="add_or_remove_one", **run)


@pytest.mark.parametrize(("growth", "expected"), [(0.0, 8), (1.0, 1)])
def test_the_number_of_bands_follows_from_noise_and_matrix(
    growth: float, expected: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Noise that does not grow with the rate is worth as many bands as 10 batches allow; noise in proportion none.
    asked = []

    def noise(target: float, *, sampling_rate: float, steps: int, **_: Any) -> float:
        asked.append((sampling_rate, steps))
        return sampling_rate**growth

    monkeypatch.setattr(noises, "least_noise", noise)
    assert noises.choose_bands(budget(1.0, batch_size=10, dataset_size=100, steps=50)) == expected
    assert asked == [(0.1, 50), (0.2, 25), (0.4, 13), (0.8, 7)]


def banded(data: Dataset, *, bands: int = 4, seed: int | None = None) -> Any:
    """A trainer of 22 steps."""
    return make(data, Method(noise_multiplier=2.0, bands=bands), steps=22, seed=seed)


def epsilon_of(blocks: int) -> float:
    """Of so many steps of independent noise with batches four times as large, 80 of 200 records."""
    return rqp.epsilon(2.0, steps=blocks, sampling_rate=0.4, delta=1e-5).epsilon


@judges("training.trainer.Trainer.claim")
def test_a_trainer_takes_the_parts_in_turn(blobs: Dataset) -> None:
    run = banded(blobs)
    batches = watched_batches(run)
    assert run.run().test_accuracy > 0.9
    seen = [set(batch) for batch in batches]
    assert 10 < np.mean([len(one) for one in seen]) < 30
    for gap in range(1, 5):
        shared = sum(len(first & second) for first, second in zip(seen, seen[gap:], strict=False))
        assert (shared > 0) == (gap == 4)
    # 22 steps, one in four.
    assert run.claim().epsilon == pytest.approx(epsilon_of(6), rel=1e-6)  # the rate is rounded up
    assert run.claim(20).epsilon == run.claim(17).epsilon < run.claim().epsilon
    assert "correlated over 4 steps" in run.sentence()
    assert run.describe()["bands"] == 4


@pytest.mark.parametrize("killed", [3, 8, 10, 21])
def test_an_interrupted_run_begins_new_blocks(blobs: Dataset, tmp_path: Path, killed: int) -> None:
    # 8 steps are reserved at a time, as 6 is no multiple of 4: at most two blocks of 4 are lost, beside the six.
    place, first = tmp_path / "run.pt", banded(blobs)
    dying(first, after=killed)
    with pytest.raises(KeyboardInterrupt):
        first.run(every=6, checkpoint=place)
    second = banded(blobs)
    trainer.restore(second, place)
    assert second.taken == killed // 8 * 8
    assert not second.optimizer.mixer._sums  # sums of records are never written down
    second.run(every=6, checkpoint=place)
    assert second.claim().epsilon == pytest.approx(epsilon_of(8), rel=MANY)
    again = banded(blobs)  # a second attempt over the same files
    again.run(checkpoint=place)
    assert again.claim().epsilon == pytest.approx(epsilon_of(8 + 6), rel=MANY)


def test_two_processes_on_one_ledger_pay_for_the_blocks_of_both(
    blobs: Dataset, tmp_path: Path
) -> None:
    runs = [banded(blobs) for _ in range(2)]
    ledgers = [trainer.StepLedger(run, tmp_path / "run.pt") for run in runs]
    # The second takes six steps, then is gone; the first goes on.
    assert [
        ledger.reserve(steps)
        for ledger, steps in ((ledgers[0], 4), (ledgers[1], 6), (ledgers[0], 4))
    ] == [4, 6, 4]
    assert ledgers[0].reserved == 4 + 8 + 4
    # What is left of the target goes into whole blocks.
    assert ledgers[0].reserve(8, target_epsilon=epsilon_of(5)) == 4


def test_a_seed_does_not_resume_correlated_noise(blobs: Dataset, tmp_path: Path) -> None:
    banded(blobs, seed=1).run(checkpoint=tmp_path / "run.pt")
    with pytest.raises(ParameterError, match="begins anew"):
        trainer.restore(banded(blobs, seed=1), tmp_path / "run.pt")


def test_bands_that_cannot_be(blobs: Dataset) -> None:
    for bands, projected in ((0, None), (65, None), (2, projection(bits=4, q=0.9))):
        with pytest.raises(ParameterError, match=f"bands={bands}"):
            make(blobs, Method(projection=projected, bands=bands))
    with pytest.raises(
        ParameterError, match="bands=11: each part needs a batch; 10 is the most here"
    ):
        banded(blobs, bands=11)


def _trained(capsys: pytest.CaptureFixture[str], *more: str) -> Any:
    given = ["--data", "breast-cancer", "--steps", 40, "--delta", 1e-5, "--batch-size", 20]
    with tempfile.TemporaryDirectory() as folder:
        words = run_words(Path(folder), *given, "--json", *more)
        status, printed = verb(["train", *words]), capsys.readouterr()
    return printed.err if status else json.loads(printed.out)


@pytest.mark.slow
def test_the_verb_chooses_bands(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(noises, "CHOICES", (1, 4))
    chosen = _trained(capsys, "--target-epsilon", "2", "--bands", "auto")
    assert 1.99 < chosen["epsilon"] <= 2
    assert chosen["bands"] == noises.choose_bands(
        budget(2.0, batch_size=20, dataset_size=455, steps=40)
    )
    assert f"correlated over {chosen['bands']} steps" in chosen["claim"]
    assert chosen["sampling_rate"] == pytest.approx(chosen["bands"] * 20 / 455, rel=FEW)


def test_the_verb_takes_bands_or_says_why_not(capsys: pytest.CaptureFixture[str]) -> None:
    levels = (
        "--method",
        "proj-dp-sgd",
        "--bands",
        "2",
        "--neighboring",
        "replace_one",
        "--noise-multiplier",
        "2",
    )
    assert _trained(capsys, *levels)["neighboring"] == "replace_one"
    for words, said in (
        (("--bands", "many", "--target-epsilon", "2"), "bands=many"),
        (
            ("--bands", "auto", "--noise-multiplier", "2"),
            "bands=auto: needs target_epsilon without",
        ),
        (
            ("--bands", "4", "--method", "rqp", "--target-epsilon", "2"),
            "only to dp-sgd, proj-dp-sgd",
        ),
        (("--bands", "23", "--target-epsilon", "2"), "bands=23: each part needs a batch"),
    ):
        assert said in _trained(capsys, *words)
