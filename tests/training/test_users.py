"""All records of one user: the worst pair, by enumeration and by a package; and runs that keep so many of each user."""

from __future__ import annotations

import functools
import itertools
import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from dp_accounting.pld import privacy_loss_distribution as oracle
from scipy.stats import binom, norm

from laws.registry import judges
from mezzotint import ParameterError, privacy
from mezzotint.datasets import Dataset, table_file
from mezzotint.privacy.accounting import prove
from mezzotint.training import rqp
from mezzotint.training.projection import projection
from mezzotint.training.sampling import Shifts, mixture_curve
from tolerances import FEW, MANY

WIDTH = 0.05
AXIS = np.arange(-11, 11.0001, WIDTH)
LINE = np.linspace(-22, 22, 88_001)


def in_the_plane(gradients: np.ndarray, rate: float, other: np.ndarray) -> np.ndarray:
    """Masses of a grid's cells under the noisy sum of these records and another's, each there with this chance."""
    total = np.zeros((AXIS.size, AXIS.size))
    for coins in itertools.product((0, 1), repeat=len(gradients) + 1):
        chance = math.prod(rate if coin else 1 - rate for coin in coins)
        mean = np.array(coins) @ np.vstack([gradients, other])
        total += chance * np.outer(norm.pdf(AXIS - mean[0]), norm.pdf(AXIS - mean[1])) * WIDTH**2
    return total


@functools.lru_cache(maxsize=8)
def half_lines(sign: int, records: int, rate: float, shift: float) -> Any:
    """Chances of the half-lines from each point on."""
    masses = binom.pmf(range(records + 1), records, rate)
    return sum(mass * norm.sf(LINE - sign * j * shift) for j, mass in enumerate(masses))


def on_the_line(
    signs: tuple[int, int], records: int, rate: float, shift: float, alpha: float
) -> float:
    """H_alpha of the pair, by the best of many half-lines."""
    first, second = (half_lines(sign, records, rate, shift) for sign in signs)
    return float(max(np.max(first - alpha * second), 1 - alpha))


@judges("training.rqp.Steps.account")
@pytest.mark.parametrize("records", [2, 3])
def test_no_records_of_users_exceed_the_pair(records: int) -> None:
    # Gradients of any directions and lengths, beside a record of somebody else; users that come, go or are replaced.
    rng, tight = np.random.default_rng(records), 0
    for _ in range(4):
        rate, shift = rng.uniform(0.1, 1), rng.uniform(0.2, 1.5)
        there, swapped = rng.normal(size=(2, records, 2))
        for one in (there, swapped):
            one *= (rng.choice([0.5, 1.0], records) * shift / np.linalg.norm(one, axis=1))[:, None]
        other, straight = rng.normal(size=2), shift * np.tile([[0.6, 0.8]], (records, 1))
        user, stranger, nobody, same, opposite = (
            in_the_plane(one, rate, other)
            for one in (there, swapped, there[:0], straight, -straight)
        )
        alone, gone = (in_the_plane(one, rate, np.zeros(2)) for one in (straight, straight[:0]))
        for alpha in (0.5, 1.0, 2.0):
            for p, q, signs in (
                (user, nobody, (1, 0)),
                (nobody, user, (0, -1)),
                (user, stranger, (1, -1)),
            ):
                # A smooth density is summed over a grid of 1/20 to within far less than 1e-6.
                assert (
                    np.maximum(p - alpha * q, 0).sum()
                    <= on_the_line(signs, records, rate, shift, alpha) + 1e-6
                )
            # The same grid.
            assert (
                np.maximum(same - alpha * opposite, 0).sum()
                <= on_the_line((1, -1), records, rate, shift, alpha) + 1e-6
            )
            reached = float(np.maximum(alone - alpha * gone, 0).sum())
            assert reached == pytest.approx(
                on_the_line((1, 0), records, rate, shift, alpha), abs=1e-3
            )  # cells cut by the edge
            tight += reached > 0.01
    assert tight > 6


@judges("training.sampling.mixture_curve")
@pytest.mark.parametrize("records", [1, 2, 5, 30])
@pytest.mark.parametrize("rate", [0.001, 0.3, 1.0])
def test_curves_are_those_of_the_best_half_lines(records: int, rate: float) -> None:
    shift, targets = 0.4, np.array([0.0, 1e-3, 0.1, 1.0, 3.0])
    step = rqp.Poisson(rate=rate, records_per_user=records)
    removed, added = step._pairs(1 / shift, "add_or_remove_one")
    replaced, _ = step._pairs(1 / shift, "replace_one")
    for curve, signs in ((removed, (1, 0)), (added, (0, -1)), (replaced, (1, -1))):
        # Targets far apart would leave long chords between them.
        found = np.interp(targets, fine := np.linspace(0, 4, 4001), curve(fine))
        for target, value in zip(targets, found, strict=True):
            exact = on_the_line(signs, records, rate, shift, math.exp(target))
            # Never below; above by the chords of a grid of 1e-3 and half-lines of 5e-4.
            assert exact * (1 - MANY) - FEW <= value <= exact + 1e-6


def test_what_is_left_out_of_a_mixture_counts_against_us() -> None:
    whole = Shifts(np.array([0.9, 0.1]), np.array([0.0, 1.0]), 0.0)
    part, nobody = (
        Shifts(np.array([0.9]), np.array([0.0]), 0.1),
        Shifts(np.ones(1), np.zeros(1), 0.0),
    )
    target = np.linspace(0, 2, 201)
    assert np.all(mixture_curve(part, nobody)(target) >= mixture_curve(whole, nobody)(target))
    left = part._replace(missing=0.0)
    assert np.all(
        mixture_curve(nobody, left)(target) >= mixture_curve(nobody, whole.mirrored())(target) - FEW
    )


@judges("training.rqp.epsilon")
@pytest.mark.parametrize(
    ("records", "rate", "noise"),
    [pytest.param(4, 0.01, 1.0, marks=pytest.mark.slow), (10, 0.05, 5.0)],
)
def test_a_run_costs_what_the_package_for_mixtures_says(
    records: int, rate: float, noise: float
) -> None:
    rule = rqp.Poisson(rate=rate, records_per_user=records)
    claim = rqp.epsilon(noise, sampling=rule, steps=100, delta=1e-5)
    known = oracle.from_mixture_gaussian_mechanism(
        noise,
        [*range(records + 1)],
        [*binom.pmf(range(records + 1), records, rate)],
        value_discretization_interval=1e-3,
    )
    # Both are pessimistic, the package on a wider grid: within 1e-3 of itself, and of what is true.
    assert claim.epsilon == pytest.approx(
        known.self_compose(100).get_epsilon_for_delta(1e-5), rel=1e-3
    )
    alone = rqp.epsilon(noise, sampling_rate=rate, steps=100, delta=1e-5)
    assert alone.epsilon < claim.epsilon
    replaced = rqp.epsilon(noise, sampling=rule, steps=100, delta=1e-5, neighboring="replace_one")
    assert replaced.epsilon > claim.epsilon


@pytest.mark.slow
def test_the_least_noise_for_users_meets_its_target_closely() -> None:
    settings = {"sampling": rqp.Poisson(rate=0.05, records_per_user=3), "steps": 10, "delta": 1e-5}
    least = rqp.noise_multiplier(4.0, **settings)
    assert 3.99 < rqp.epsilon(least, **settings).epsilon <= 4.0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("rate", "records", "noise", "steps", "neighboring"),
    [
        (0.01, 3, 1.0, 10, "add_or_remove_one"),
        # Losses of several records at once, far beyond those of one.
        (0.3, 4, 3.0, 2, "add_or_remove_one"),
        (0.3, 4, 3.0, 2, "replace_one"),
    ],
)
def test_a_claim_about_users_is_certified(
    rate: float, records: int, noise: float, steps: int, neighboring: Any
) -> None:
    rule = rqp.Poisson(rate=rate, records_per_user=records)
    computed = rqp.epsilon(noise, sampling=rule, steps=steps, delta=1e-5, neighboring=neighboring)
    certified, proof = prove(computed.release)
    assert proof is not None
    assert certified.certified
    assert certified.unit == "user"
    # 17-kernel.md counts a raise of .02 %; a search that stops early may raise by no more than 1 %.
    assert computed.epsilon <= certified.epsilon <= 1.01 * computed.epsilon


def test_the_claim_says_whom_it_is_about() -> None:
    rule = rqp.Poisson(rate=0.01, records_per_user=3)
    claim = rqp.epsilon(1.0, sampling=rule, steps=10, delta=1e-5)
    assert claim.unit == "user"
    assert "adding or removing all records of one user" in str(claim)
    assert "between data in which a user has at most 3 records" in str(claim)
    assert claim.as_dict()["records_per_user"] == 3
    assert (
        rqp.epsilon(1.0, sampling=replace(rule, records_per_user=1), steps=10, delta=1e-5).unit
        == "record"
    )
    # One record is accounted as ever, by its own pair.
    assert rqp.epsilon(
        1.0, sampling=replace(rule, records_per_user=1), steps=10, delta=1e-5
    ).epsilon == (rqp.epsilon(1.0, sampling_rate=0.01, steps=10, delta=1e-5).epsilon)
    # Replaced codes hide nothing more of users.
    contracted = rqp.epsilon(1.0, q=0.5, sampling=rule, steps=10, delta=1e-5)
    assert contracted.epsilon == pytest.approx(claim.epsilon, rel=MANY)
    phase = rqp.Phase(noise_multiplier=1.0, kappa=1.0, sampling=rule, steps=1)
    other = replace(phase, sampling=rqp.Poisson(rate=0.01))
    for build, words in (
        (lambda: rqp.Poisson(rate=0.01, records_per_user=0), "records_per_user=0"),
        (lambda: rqp.Poisson(rate=0.01, records_per_user=101), "100 is the most"),
        (lambda: replace(phase, bands=2), "several parts"),
        (
            lambda: privacy.account(rqp.training_release([phase, other], delta=1e-5)),
            "use the largest",
        ),
    ):
        with pytest.raises(ParameterError, match=words):
            build()


torch = pytest.importorskip("torch")
pytest.importorskip("opacus")

from mezzotint import training  # noqa: E402 - the room needs the extra
from mezzotint.cli.application import run as verb  # noqa: E402
from mezzotint.training import Banded  # noqa: E402
from mezzotint.training.batches import first_records  # noqa: E402
from training.flat import run_words  # noqa: E402
from training.runs import Method, make  # noqa: E402


def test_of_every_user_the_first_records_are_kept_whoever_else_is_there() -> None:
    rng = np.random.default_rng(0)
    for users in (rng.integers(0, 9, 100), np.array(["a", "b", "a", "a", "c", "b"]), np.zeros(4)):
        for most in (1, 2, 50):
            kept = first_records(users, most, records=len(users)).tolist()
            seen: dict[Any, int] = {}
            assert kept == [
                i
                for i, user in enumerate(users.tolist())
                if (seen := {**seen, user: seen.get(user, 0) + 1})[user] <= most
            ]
            for user in set(users.tolist()):  # without somebody, the others' records are the same
                rest = np.flatnonzero(users != user)
                if rest.size:
                    without = rest[first_records(users[rest], most, records=rest.size)]
                    assert without.tolist() == [i for i in kept if users[i] != user]
    with pytest.raises(ParameterError, match="each of the 3 records"):
        first_records([1, 2], 1, records=3)
    with pytest.raises(ParameterError, match="records_per_user=0"):
        first_records([1, 2], 0, records=2)


def parts(data: Dataset, **loader: Any) -> tuple[Any, Any, Any]:
    module = torch.nn.Linear(5, 2)
    records = torch.utils.data.TensorDataset(
        torch.from_numpy(data.train_x),
        torch.from_numpy(data.train_y),
        torch.arange(len(data.train_x)),
    )
    made = torch.utils.data.DataLoader(records, **{"batch_size": 20, "shuffle": True, **loader})
    return module, torch.optim.SGD(module.parameters(), lr=1.0), made


@pytest.mark.slow
@judges("training.accountant.Accountant.claim")
def test_a_script_whose_users_have_several_records(blobs: Dataset) -> None:
    users = np.arange(200) % 30  # six or seven records each
    call = {"delta": 1e-5, "users": users, "records_per_user": 4}
    module, optimizer, loader, accountant = training.make_private(
        *parts(blobs), **call, target_epsilon=8.0, epochs=3
    )
    seen: set[int] = set()
    for _ in range(3):
        for x, y, names in loader:
            seen |= set(names.tolist())
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(module(x), y).backward()
            optimizer.step()
    assert seen <= set(range(120))
    assert len(seen) > 80
    claim = accountant.claim()
    assert 7.99 < claim.epsilon <= 8
    assert claim.unit == "user"
    rule = rqp.Poisson(rate=accountant.sampling.rate, records_per_user=4)
    assert rule.rate == pytest.approx(20 / 120, rel=FEW)
    assert (
        claim.epsilon
        == rqp.epsilon(optimizer.noise_multiplier, sampling=rule, steps=30, delta=1e-5).epsilon
    )
    # A run that goes on is about the same users.
    other = training.make_private(*parts(blobs), delta=1e-5, noise_multiplier=1.0)[3]
    with pytest.raises(ParameterError, match="records_per_user=1"):
        other.load_state_dict(accountant.state_dict())
    for settings, words in (
        ({"users": None}, "say whose record"),
        ({"users": users[:7]}, "each of the 200 records"),
        ({"noise": Banded(2)}, "several parts"),
        ({"method": "rqp"}, "save nothing for users"),
    ):
        with pytest.raises(ParameterError, match=words):
            training.make_private(*parts(blobs), **{**call, "noise_multiplier": 1.0, **settings})


@judges("training.trainer.Trainer.claim")
def test_a_trainer_keeps_so_many_records_of_each_user(blobs: Dataset) -> None:
    owned = replace(blobs, train_users=np.repeat(np.arange(20), 10))
    method = Method(noise_multiplier=4.0)
    run = make(owned, method, records_per_user=3)
    assert len(run.data.train_x) == 60
    assert np.all(np.unique(run.data.train_users, return_counts=True)[1] == 3)
    run.run()
    claim = run.claim()
    assert claim.unit == "user"
    rule = rqp.Poisson(rate=run.sampling_rate, records_per_user=3)
    assert claim.epsilon == rqp.epsilon(4.0, sampling=rule, steps=20, delta=1e-5).epsilon
    with pytest.raises(ParameterError, match="do not say whose"):
        make(blobs, method, records_per_user=3)
    with pytest.raises(ParameterError, match="several parts"):
        make(owned, replace(method, bands=2), records_per_user=3)
    # A table that replaces codes saves nothing for users: its noise would not keep to a target.
    replacing = replace(method, projection=projection(bits=4, q=0.9), bound=0.5)
    with pytest.raises(ParameterError, match="save nothing for users"):
        make(owned, replacing, records_per_user=3)


def test_the_verb_reads_users_from_a_column(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rng = np.random.default_rng(0)
    outcome = rng.integers(0, 2, 300)
    rows = [
        f"{x:.3f},{y},u{i % 61}"
        for i, (x, y) in enumerate(zip(rng.normal(2 * outcome, 1), outcome, strict=True))
    ]
    (tmp_path / "t.csv").write_text("x,y,who\n" + "\n".join(rows) + "\n")

    def call(*more: str) -> Any:
        given = ["--data", tmp_path / "t.csv", "--label", "y", "--steps", 10, "--delta", 1e-5]
        given += ["--batch-size", 20, "--every", 10, "--json", *more]
        words = ["train", *run_words(tmp_path, *given)]
        status, printed = verb(words), capsys.readouterr()
        return printed.err if status else json.loads(printed.out)

    facts = call(
        "--users",
        "who",
        "--records-per-user",
        "3",
        "--noise-multiplier",
        "2",
        "--out",
        str(tmp_path / "model"),
    )
    assert "adding or removing all records of one user" in facts["claim"]
    assert "at most 3 records" in facts["claim"]
    # Of 61 users about a fifth test; each of the others has three or more rows to train on.
    owners = table_file(tmp_path / "t.csv", label="y", users="who").train_users
    assert owners is not None
    trained = len(set(owners.tolist()))
    assert 36 < trained < 61
    assert facts["sampling_rate"] == pytest.approx(20 / (3 * trained), rel=FEW)
    rule = rqp.Poisson(rate=facts["sampling_rate"], records_per_user=3)
    assert facts["epsilon"] == rqp.epsilon(2.0, sampling=rule, steps=10, delta=1e-5).epsilon
    assert (
        verb(
            ["report", str(tmp_path / "model" / "log.jsonl"), "--out", str(tmp_path / "page.html")]
        )
        == 0
    )
    assert "records_per_user=3" in (tmp_path / "page.html").read_text()
    for words, said in (
        (("--users", "who"), "users=who: users and records_per_user go together"),
        (("--records-per-user", "3"), "users is not given: users and"),
        (("--users", "whom", "--records-per-user", "3"), "users=whom: no such column"),
        (("--users", "y", "--records-per-user", "3"), "this column is what is learned"),
        (
            ("--users", "who", "--records-per-user", "3", "--bands", "2"),
            "use fresh noise with users",
        ),
        (
            ("--users", "who", "--records-per-user", "3", "--method", "rqp"),
            "users=who: does not apply to rqp",
        ),
        (("--data", "breast-cancer", "--users", "who", "--records-per-user", "3"), "only tables"),
    ):
        assert said in call("--target-epsilon", "8", *words)
