"""Federated training simulated in one process: what the RQM paper's experiments do, fast enough to run them as meant.

Sums are plain and noise is seeded: a simulation, never a private run. A coordinate is quantized by one look into an
array of codes, [knot][16 random bits], so probabilities are multiples of 2^-16 here. The draws of a round depend on the
seed and the round alone, so that a run goes on exactly where it stopped.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

import numba
import numpy as np
import numpy.typing as npt

from mezzotint import datasets
from mezzotint.core import brought_by
from mezzotint.core.errors import ParameterError
from mezzotint.core.mechanism import Mechanism
from mezzotint.core.records import Progress

if TYPE_CHECKING:
    import torch

Vector = npt.NDArray[np.float32]
DRAWS = 2**16
"""Random words of 16 bits choose a code."""
CHECKPOINT = 50
"""Rounds between two checkpoints of a run."""


QUICK_ROUNDS, QUICK_SEEDS = 20, 2
"""At most so many rounds and seeds where a run is only to be seen to work."""


@final
@dataclass(frozen=True, kw_only=True)
class Run:
    """What the user says about an experiment.

    Arguments:
        data: where its data lie; model, device: as of `Experiment`.
        rounds, seeds: None takes what the experiment has.
        quick: a smaller run. keep: file of finished runs.
        progress: called as progress(done, total) after each round.
    """

    data: str | None = None
    model: str = "softmax"
    rounds: int | None = None
    seeds: int | None = None
    quick: bool = False
    keep: Path | None = None
    device: str = "cpu"
    progress: Progress | None = None

    def rounds_or(self, usual: int) -> int:
        """The rounds of the experiment, whose usual number is given."""
        rounds = usual if self.rounds is None else self.rounds
        return min(rounds, QUICK_ROUNDS) if self.quick else rounds

    def seeds_or(self, usual: int) -> int:
        """The seeds of the experiment, whose usual number is given."""
        seeds = usual if self.seeds is None else self.seeds
        return min(seeds, QUICK_SEEDS) if self.quick else seeds


@final
@dataclass(frozen=True, kw_only=True)
class Point:
    """What an evaluation found: after so many rounds, test loss in nats, and accuracy in [0, 1]."""

    round: int
    loss: float
    accuracy: float


@final
@dataclass(frozen=True, kw_only=True)
class Contestant:
    """How the clients' updates reach the server.

    Arguments:
        clip: largest coordinate c of an update; None does not clip.
        table: quantizes each coordinate, in units of c on [-1, 1]; None sends it as it is.
        deviation: of Gaussian noise that the server adds to each coordinate of the sum.
        learning_rate: of the server; None takes the experiment's.
    """

    clip: float | None
    table: Mechanism | None = None
    deviation: float = 0.0
    learning_rate: float | None = None

    def fingerprint(self) -> list[object]:
        """What identifies it in a file of kept runs."""
        table = None if self.table is None else self.table.sha256
        return [self.clip, table, self.deviation, self.learning_rate]


@final
@dataclass(frozen=True, kw_only=True)
class Experiment:
    """How one training is run.

    Arguments:
        model: "softmax", "small-cnn" or "cnn" (the paper's, 1,206,590 parameters on FEMNIST).
        rounds, per_round: of how many clients each, drawn without replacement.
        learning_rate: of the server, on the mean of the clients' updates, which are minus their gradients.
        batch: most records that a client uses, drawn at random; 0 for all.
        evaluations: points of a curve.
        device: "cpu" or "cuda".
    """

    model: str = "softmax"
    rounds: int = 400
    per_round: int = 40
    learning_rate: float = 500.0
    batch: int = 0
    evaluations: int = 10
    device: str = "cpu"

    @property
    def every(self) -> int:
        """Rounds between two evaluations."""
        return max(1, self.rounds // self.evaluations)


@final
class CodeTable:
    """A table as an array of codes: for each knot, the code that each 16-bit word draws."""

    def __init__(self, table: Mechanism) -> None:
        edges = np.rint(np.cumsum(table.probabilities, axis=1) * DRAWS).astype(np.int64)
        counts = np.diff(edges, axis=1, prepend=0)
        codes = np.arange(table.levels.size, dtype=np.uint8)
        self.codes = np.stack([np.repeat(codes, row) for row in counts])
        self.knots = table.knots.astype(np.float32)
        self.levels = table.levels.astype(np.float32)

    def report(self, values: Vector, rng: np.random.Generator) -> Vector:
        """Decoded reports of values in the range of the knots, same shape."""
        words = rng.integers(0, DRAWS, (2, values.size), dtype=np.uint16)
        return _reports(values, self.knots, self.codes, self.levels, words)


@numba.njit(cache=True)
def _reports(
    values: Vector, knots: Vector, codes: Any, levels: Vector, words: Any
) -> Vector:  # pragma: no cover - compiled
    result = np.empty(values.size, dtype=np.float32)
    last = knots.size - 2
    for i in range(values.size):
        cell = min(last, max(0, np.searchsorted(knots, values[i], side="right") - 1))
        width = knots[cell + 1] - knots[cell]
        share = (values[i] - knots[cell]) / width if width > 0 else np.float32(0)
        row = cell + 1 if words[0, i] < share * 65536.0 else cell
        result[i] = levels[codes[row, words[1, i]]]
    return result


def network(name: str, shape: tuple[int, ...], classes: int) -> torch.nn.Module:
    """A model by name for records of a shape: images (rows, columns[, channels])."""
    with brought_by("torch"):
        from torch import nn
    channels = shape[2] if len(shape) == 3 else 1
    if name == "softmax":
        return nn.Sequential(nn.Flatten(), nn.Linear(int(np.prod(shape)), classes))
    if name not in ("cnn", "small-cnn"):
        raise ParameterError("model", name, "use softmax, small-cnn or cnn")
    if name == "small-cnn":
        sides = [-(-side // 4) for side in shape[:2]]
        return nn.Sequential(
            nn.Conv2d(channels, 8, 5, stride=2, padding=2),
            nn.ReLU(),
            nn.Conv2d(8, 16, 5, stride=2, padding=2),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(16 * sides[0] * sides[1], classes),
        )
    sides = [(side - 4) // 2 for side in shape[:2]]
    return nn.Sequential(
        nn.Conv2d(channels, 32, 3),
        nn.ReLU(),
        nn.Conv2d(32, 64, 3),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(64 * sides[0] * sides[1], 128),
        nn.ReLU(),
        nn.Linear(128, classes),
    )


@final
class Simulation:
    """A federation and a model on one device.

    Arguments:
        federation: the clients' records and the test records.
        experiment: how each run is done.
    """

    def __init__(self, federation: datasets.Federation, experiment: Experiment) -> None:
        with brought_by("torch"):
            import torch
        self.torch = torch
        self.experiment = experiment
        self.device = torch.device(experiment.device)
        self.clients = [
            (self._images(x), torch.as_tensor(y, device=self.device)) for x, y in federation.clients
        ]
        self.test_x = self._images(federation.test_x)
        self.test_y = torch.as_tensor(federation.test_y, device=self.device)
        shape = federation.test_x.shape[1:]
        self.module = network(experiment.model, shape, federation.classes).to(self.device)

    def _images(self, x: npt.NDArray[np.float32]) -> torch.Tensor:
        """Records with channels first."""
        tensor = self.torch.as_tensor(x, device=self.device)
        if tensor.ndim == 3:
            return tensor[:, None]
        return tensor.movedim(-1, 1).contiguous() if tensor.ndim == 4 else tensor

    def initial(self, seed: int) -> torch.Tensor:
        """The parameters to start from: zero for softmax, PyTorch's own start for networks."""
        torch = self.torch
        if self.experiment.model == "softmax":
            with torch.no_grad():
                for tensor in self.module.parameters():
                    tensor.zero_()
        else:
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(seed)
                for part in self.module.modules():
                    reset: Callable[[], None] | None = getattr(part, "reset_parameters", None)
                    if reset is not None:
                        reset()
        return torch.nn.utils.parameters_to_vector(self.module.parameters()).detach().clone()

    def run(
        self,
        contestant: Contestant,
        seed: int,
        *,
        checkpoint: Path | None = None,
        tick: Callable[[], None] = lambda: None,
    ) -> list[Point]:
        """Trains once.

        Arguments:
            contestant: how updates reach the server; seed: of start, clients, batches and noise.
            checkpoint: file from which an interrupted run of the same settings goes on; removed at the end.
            tick: called after every round.

        Returns: the evaluations.
        """
        how = self.experiment
        parameters, first, points = self.initial(seed), 0, list[Point]()
        marks = hashlib.sha256(json.dumps([asdict(how), seed, contestant.fingerprint()]).encode())
        if checkpoint is not None and checkpoint.is_file():
            saved = self.torch.load(checkpoint, map_location=self.device, weights_only=True)
            if saved["marks"] == marks.hexdigest():
                parameters, first = saved["parameters"], saved["round"]
                points = [Point(**point) for point in saved["points"]]
        codes = None if contestant.table is None else CodeTable(contestant.table)
        rate = how.learning_rate if contestant.learning_rate is None else contestant.learning_rate
        for _ in range(first):
            tick()
        for number in range(first + 1, how.rounds + 1):
            rng = np.random.default_rng([seed, number])
            parameters = parameters + rate * self._mean(parameters, contestant, codes, rng)
            if number % how.every == 0:
                points.append(self._evaluated(parameters, number))
            if checkpoint is not None and number % CHECKPOINT == 0:
                state = {
                    "marks": marks.hexdigest(),
                    "parameters": parameters,
                    "round": number,
                    "points": [asdict(point) for point in points],
                }
                self.torch.save(state, checkpoint)
            tick()
        if checkpoint is not None:
            checkpoint.unlink(missing_ok=True)
        return points

    def _mean(
        self,
        parameters: torch.Tensor,
        contestant: Contestant,
        codes: CodeTable | None,
        rng: np.random.Generator,
    ) -> torch.Tensor:
        """The mean of the updates of this round's clients, as the server decodes it."""
        how, clip = self.experiment, contestant.clip
        clients = rng.choice(len(self.clients), how.per_round, replace=False)
        # Clients and batches come first, so that they are the same for every contestant.
        batches = [self._batch(int(client), rng) for client in clients]
        self.torch.nn.utils.vector_to_parameters(parameters, self.module.parameters())
        total = self.torch.zeros_like(parameters)
        for x, y in batches:
            update = -self._gradient(x, y)
            if clip is not None:
                update = update.clamp(-clip, clip)
            if codes is not None:
                assert clip is not None, "a table has a clip"
                scaled = (update / clip).cpu().numpy()
                reports = codes.report(scaled, rng) * np.float32(clip)
                update = self.torch.as_tensor(reports, device=self.device)
            total += update
        if contestant.deviation > 0:
            noise = rng.normal(0.0, contestant.deviation, total.numel()).astype(np.float32)
            total += self.torch.as_tensor(noise, device=self.device)
        return total / how.per_round

    def _batch(self, client: int, rng: np.random.Generator) -> tuple[torch.Tensor, torch.Tensor]:
        x, y = self.clients[client]
        if not 0 < self.experiment.batch < len(y):
            return x, y
        chosen = self.torch.as_tensor(rng.choice(len(y), self.experiment.batch, replace=False))
        return x[chosen.to(self.device)], y[chosen.to(self.device)]

    def _gradient(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        loss = self.torch.nn.functional.cross_entropy(self.module(x), y)
        parts = self.torch.autograd.grad(loss, list(self.module.parameters()))
        return self.torch.cat([part.reshape(-1) for part in parts])

    def _evaluated(self, parameters: torch.Tensor, number: int) -> Point:
        torch = self.torch
        torch.nn.utils.vector_to_parameters(parameters, self.module.parameters())
        loss, right = 0.0, 0
        with torch.no_grad():
            for x, y in zip(self.test_x.split(500), self.test_y.split(500), strict=True):
                scores = self.module(x)
                loss += float(torch.nn.functional.cross_entropy(scores, y, reduction="sum"))
                right += int((scores.argmax(dim=1) == y).sum())
        size = len(self.test_y)
        return Point(round=number, loss=loss / size, accuracy=right / size)


@final
class Kept:
    """Finished runs in a file, a line of JSON each; without a file, in memory.

    Arguments:
        path: of the file; runs that it holds are not done again, and the run under way is saved beside it.
    """

    def __init__(self, path: Path | None) -> None:
        self.path = path
        text = path.read_text(encoding="utf-8") if path is not None and path.exists() else ""
        lines = [json.loads(line) for line in text.splitlines()]
        self.runs = {line["run"]: [Point(**point) for point in line["points"]] for line in lines}

    def run(
        self,
        simulation: Simulation,
        contestant: Contestant,
        seed: int,
        *,
        data: str,
        tick: Callable[[], None],
    ) -> list[Point]:
        """The evaluations of a run, from the file if it is there."""
        facts = [data, asdict(simulation.experiment), contestant.fingerprint(), seed]
        key = hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:32]
        if key in self.runs:
            for _ in range(simulation.experiment.rounds):
                tick()
            return self.runs[key]
        checkpoint = None if self.path is None else self.path.with_suffix(f".{key[:8]}.pt")
        points = simulation.run(contestant, seed, checkpoint=checkpoint, tick=tick)
        self.runs[key] = points
        if self.path is not None:
            line = {"run": key, "facts": facts, "points": [asdict(point) for point in points]}
            with self.path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(line) + "\n")
        return points


def histories(
    simulation: Simulation,
    contestants: Mapping[str, Contestant],
    seeds: int,
    *,
    kept: Kept,
    data: str,
    tick: Callable[[], None],
) -> dict[str, npt.NDArray[np.float64]]:
    """name -> (seeds, points, 3) of round, loss and accuracy."""
    found: dict[str, npt.NDArray[np.float64]] = {}
    for name, contestant in contestants.items():
        runs = [
            kept.run(simulation, contestant, seed, data=data, tick=tick) for seed in range(seeds)
        ]
        found[name] = np.array(
            [[(point.round, point.loss, point.accuracy) for point in run] for run in runs]
        )
    return found


def pseudo_writers(folder: str, clients: int = 3400, records: int = 17) -> datasets.Federation:
    """MNIST's training records in random parts of equal size, as many as the paper has devices."""
    data = datasets.idx_folder(folder)
    order = np.random.default_rng(0).permutation(len(data.train_y))[: clients * records]
    parts = order.reshape(clients, records)
    return datasets.Federation(
        clients=tuple((data.train_x[part], data.train_y[part]) for part in parts),
        test_x=data.test_x,
        test_y=data.test_y,
        classes=data.classes,
    )
