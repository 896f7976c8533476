"""Federated training simulated in one process: what the RQM paper's experiments do, fast enough to
run them as meant.

Sums are plain and noise is seeded: a simulation, never a private run. A coordinate is quantized by
one look into an array of codes, [knot][16 random bits], so probabilities are multiples of 2^-16
here. The draws of a round depend on the seed and the round alone, so that a run goes on exactly
where it stopped.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

import numba
import numpy as np
import numpy.typing as npt

from mezzotint import datasets
from mezzotint.core import brought_by
from mezzotint.core.errors import ParameterError
from mezzotint.core.mechanism import Mechanism
from mezzotint.core.types import FloatArray

if TYPE_CHECKING:
    import torch

Vector = npt.NDArray[np.float32]
Tick = Callable[[], None]
DRAWS = 2**16
"""Random words of 16 bits choose a code."""
CHECKPOINT = 50
"""Rounds between two checkpoints of a run."""
EVALUATED = 500
"""Test records that are evaluated together."""


@final
@dataclass(frozen=True, kw_only=True)
class Point:
    """An evaluation: after so many rounds, test loss in nats, and accuracy in [0, 1]."""

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
        """Identifies it in a file of finished runs."""
        table_hash = None
        if self.table is not None:
            table_hash = self.table.sha256
        return [self.clip, table_hash, self.deviation, self.learning_rate]


@final
@dataclass(frozen=True, kw_only=True)
class Experiment:
    """How one training is run.

    Arguments:
        model: "softmax", "small-cnn" or "cnn" (the paper's, 1,206,590 parameters on FEMNIST).
        rounds, per_round: of how many clients each, drawn without replacement; each uses all its
            records.
        learning_rate: of the server, on the mean of the clients' updates, which are minus their
            gradients.
        evaluations: points of a curve.
        device: "cpu" or "cuda".
    """

    model: str = "softmax"
    rounds: int = 400
    per_round: int = 40
    learning_rate: float = 500.0
    evaluations: int = 10
    device: str = "cpu"

    @property
    def interval(self) -> int:
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
        upper_share = np.float32(0)
        if width > 0:
            upper_share = (values[i] - knots[cell]) / width
        row = cell
        if words[0, i] < upper_share * 65536.0:
            row = cell + 1
        result[i] = levels[codes[row, words[1, i]]]
    return result


def network(name: str, shape: tuple[int, ...], classes: int) -> torch.nn.Module:
    """A model by name for records of a shape: images (rows, columns[, channels])."""
    with brought_by("torch"):
        from torch import nn
    channels = 1
    if len(shape) == 3:
        channels = shape[2]
    if name == "softmax":
        return nn.Sequential(nn.Flatten(), nn.Linear(int(np.prod(shape)), classes))
    if name == "small-cnn":
        quarters = [-(-side // 4) for side in shape[:2]]
        return nn.Sequential(
            nn.Conv2d(channels, 8, 5, stride=2, padding=2),
            nn.ReLU(),
            nn.Conv2d(8, 16, 5, stride=2, padding=2),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(16 * quarters[0] * quarters[1], classes),
        )
    if name != "cnn":
        raise ParameterError("model", name, "use softmax, small-cnn or cnn")
    halves = [(side - 4) // 2 for side in shape[:2]]
    return nn.Sequential(
        nn.Conv2d(channels, 32, 3),
        nn.ReLU(),
        nn.Conv2d(32, 64, 3),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(64 * halves[0] * halves[1], 128),
        nn.ReLU(),
        nn.Linear(128, classes),
    )


@final
@dataclass(kw_only=True, eq=False)
class State:
    """Where a run stands: parameters after so many rounds, and the evaluations until then."""

    parameters: torch.Tensor
    round: int = 0
    points: list[Point] = field(default_factory=list)


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
        self.clients = [self._on_device(x, y) for x, y in federation.clients]
        self.test_x, self.test_y = self._on_device(federation.test_x, federation.test_y)
        shape = federation.test_x.shape[1:]
        self.module = network(experiment.model, shape, federation.classes).to(self.device)

    def _on_device(self, x: Vector, y: npt.NDArray[np.int64]) -> tuple[torch.Tensor, torch.Tensor]:
        """Records with channels first, and labels."""
        images = self.torch.as_tensor(x, device=self.device)
        if images.ndim == 3:
            images = images[:, None]
        elif images.ndim == 4:
            images = images.movedim(-1, 1).contiguous()
        return images, self.torch.as_tensor(y, device=self.device)

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
                for layer in self.module.modules():
                    reset: Tick | None = getattr(layer, "reset_parameters", None)
                    if reset is not None:
                        reset()
        return torch.nn.utils.parameters_to_vector(self.module.parameters()).detach().clone()

    def run(
        self,
        contestant: Contestant,
        seed: int,
        *,
        checkpoint: Path | None = None,
        tick: Tick = lambda: None,
    ) -> list[Point]:
        """Trains once.

        Arguments:
            contestant: how updates reach the server.
            seed: of start, clients and noise.
            checkpoint: file from which an interrupted run of the same settings goes on; removed at
                the end.
            tick: called after every round.

        Returns: the evaluations.
        """
        experiment = self.experiment
        facts = json.dumps([asdict(experiment), seed, contestant.fingerprint()])
        fingerprint = hashlib.sha256(facts.encode()).hexdigest()
        state = self._start(seed, checkpoint, fingerprint)
        codes = None
        if contestant.table is not None:
            codes = CodeTable(contestant.table)
        rate = contestant.learning_rate or experiment.learning_rate
        for _ in range(state.round):
            tick()
        while state.round < experiment.rounds:
            state.round += 1
            rng = np.random.default_rng([seed, state.round])
            update = self._mean_update(state.parameters, contestant, codes, rng)
            state.parameters = state.parameters + rate * update
            if state.round % experiment.interval == 0:
                state.points.append(self._evaluated(state))
            if checkpoint is not None and state.round % CHECKPOINT == 0:
                self.torch.save({"fingerprint": fingerprint, **asdict(state)}, checkpoint)
            tick()
        if checkpoint is not None:
            checkpoint.unlink(missing_ok=True)
        return state.points

    def _start(
        self,
        seed: int,
        checkpoint: Path | None,
        fingerprint: str,
    ) -> State:
        """The first state of a run, or where the checkpoint of the same run stopped."""
        if checkpoint is not None and checkpoint.is_file():
            saved = self.torch.load(checkpoint, map_location=self.device, weights_only=True)
            if saved["fingerprint"] == fingerprint:
                points = [Point(**point) for point in saved["points"]]
                parameters: torch.Tensor = saved["parameters"]
                return State(parameters=parameters, round=saved["round"], points=points)
        return State(parameters=self.initial(seed))

    def _mean_update(
        self,
        parameters: torch.Tensor,
        contestant: Contestant,
        codes: CodeTable | None,
        rng: np.random.Generator,
    ) -> torch.Tensor:
        """The mean of the updates of this round's clients, as the server decodes it."""
        torch, clip = self.torch, contestant.clip
        # Clients come first, so that they are the same for every contestant.
        clients = rng.choice(len(self.clients), self.experiment.per_round, replace=False)
        torch.nn.utils.vector_to_parameters(parameters, self.module.parameters())
        total = torch.zeros_like(parameters)
        for client in clients.tolist():
            update = -self._gradient(*self.clients[client])
            if clip is not None:
                update = update.clamp(-clip, clip)
            if codes is not None:
                assert clip is not None, "a table has a clip"
                scaled = (update / clip).cpu().numpy()
                reports = codes.report(scaled, rng) * np.float32(clip)
                update = torch.as_tensor(reports, device=self.device)
            total += update
        if contestant.deviation > 0:
            noise = rng.normal(0.0, contestant.deviation, total.numel()).astype(np.float32)
            total += torch.as_tensor(noise, device=self.device)
        return total / self.experiment.per_round

    def _gradient(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        loss = self.torch.nn.functional.cross_entropy(self.module(x), y)
        gradients = self.torch.autograd.grad(loss, list(self.module.parameters()))
        return self.torch.cat([gradient.reshape(-1) for gradient in gradients])

    def _evaluated(self, state: State) -> Point:
        torch = self.torch
        torch.nn.utils.vector_to_parameters(state.parameters, self.module.parameters())
        loss, correct = 0.0, 0
        batches = zip(self.test_x.split(EVALUATED), self.test_y.split(EVALUATED), strict=True)
        with torch.no_grad():
            for x, y in batches:
                scores = self.module(x)
                loss += float(torch.nn.functional.cross_entropy(scores, y, reduction="sum"))
                correct += int((scores.argmax(dim=1) == y).sum())
        size = len(self.test_y)
        return Point(round=state.round, loss=loss / size, accuracy=correct / size)


@final
class FinishedRuns:
    """Finished runs in a file, a line of JSON each; without a file, in memory.

    Arguments:
        path: of the file; runs that it holds are not done again, and the run under way is saved
            beside it.
    """

    def __init__(self, path: Path | None) -> None:
        self.path = path
        text = ""
        if path is not None and path.exists():
            text = path.read_text(encoding="utf-8")
        lines = [json.loads(line) for line in text.splitlines()]
        self.runs = {line["run"]: [Point(**point) for point in line["points"]] for line in lines}

    def run(
        self, simulation: Simulation, contestant: Contestant, seed: int, *, data: str, tick: Tick
    ) -> list[Point]:
        """The evaluations of a run, from the file if it is there."""
        facts = [data, asdict(simulation.experiment), contestant.fingerprint(), seed]
        key = hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:32]
        if key in self.runs:
            for _ in range(simulation.experiment.rounds):
                tick()
            return self.runs[key]
        if self.path is None:
            points = simulation.run(contestant, seed, tick=tick)
        else:
            checkpoint = self.path.with_suffix(f".{key[:8]}.pt")
            points = simulation.run(contestant, seed, checkpoint=checkpoint, tick=tick)
            line = {"run": key, "facts": facts, "points": [asdict(point) for point in points]}
            with self.path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(line) + "\n")
        self.runs[key] = points
        return points


def histories(
    simulation: Simulation,
    contestants: Mapping[str, Contestant],
    seeds: int,
    *,
    finished: FinishedRuns,
    data: str,
    tick: Tick,
) -> dict[str, FloatArray]:
    """Trains every contestant with every seed.

    Arguments:
        simulation, finished, tick: as of `FinishedRuns.run`.
        contestants: by name.
        seeds: how many, from 0.
        data: what the federation is called.

    Returns: name -> (seeds, points, 3) of round, loss and accuracy.
    """
    result: dict[str, FloatArray] = {}
    for name, contestant in contestants.items():
        runs = [
            finished.run(simulation, contestant, seed, data=data, tick=tick)
            for seed in range(seeds)
        ]
        points = [[(point.round, point.loss, point.accuracy) for point in run] for run in runs]
        result[name] = np.array(points)
    return result


def pseudo_writers(
    folder: str,
    clients: int = 3400,
    records: int = 17,
) -> datasets.Federation:
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
