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
from mezzotint.core.errors import FileFormatError, ParameterError
from mezzotint.core.files import parse_object, read_text
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

    # Fields are keys of the lines of files of finished runs.
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
        rounds, clients_per_round: of how many clients each, drawn without replacement; each uses all its
            records.
        learning_rate: of the server, on the mean of the clients' updates, which are minus their
            gradients.
        evaluations: points of a curve.
        device: "cpu" or "cuda".
    """

    # Fields are keys of files of finished runs: with another field, all are done again.
    model: str = "softmax"
    rounds: int = 400
    clients_per_round: int = 40
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
        cumulative = np.rint(np.cumsum(table.probabilities, axis=1) * DRAWS).astype(np.int64)
        draw_counts = np.diff(cumulative, axis=1, prepend=0)
        code_numbers = np.arange(table.levels.size, dtype=np.uint8)
        self.codes = np.stack([np.repeat(code_numbers, knot_counts) for knot_counts in draw_counts])
        self.knots = table.knots.astype(np.float32)
        self.levels = table.levels.astype(np.float32)

    def report(self, values: Vector, rng: np.random.Generator) -> Vector:
        """Decoded reports of values in the range of the knots, same shape."""
        random_words = rng.integers(0, DRAWS, (2, values.size), dtype=np.uint16)
        return _reports(values, self.knots, self.codes, self.levels, random_words)


@numba.njit(cache=True)
def _reports(
    values: Vector, knots: Vector, codes: Any, levels: Vector, words: Any
) -> Vector:  # pragma: no cover - compiled
    reported = np.empty(values.size, dtype=np.float32)
    last_cell = knots.size - 2
    for coordinate in range(values.size):
        cell = min(last_cell, max(0, np.searchsorted(knots, values[coordinate], side="right") - 1))
        width = knots[cell + 1] - knots[cell]
        upper_share = np.float32(0)
        if width > 0:
            upper_share = (values[coordinate] - knots[cell]) / width
        knot = cell
        if words[0, coordinate] < upper_share * 65536.0:
            knot = cell + 1
        reported[coordinate] = levels[codes[knot, words[1, coordinate]]]
    return reported


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

    # Fields are keys of saved simulations.
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
        features = self.torch.as_tensor(x, device=self.device)
        if features.ndim == 3:
            features = features[:, None]
        elif features.ndim == 4:
            features = features.movedim(-1, 1).contiguous()
        return features, self.torch.as_tensor(y, device=self.device)

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
        run_facts = json.dumps([asdict(experiment), seed, contestant.fingerprint()])
        fingerprint = hashlib.sha256(run_facts.encode()).hexdigest()
        run_state = self._start(seed, checkpoint, fingerprint)
        code_table = None
        if contestant.table is not None:
            code_table = CodeTable(contestant.table)
        learning_rate = contestant.learning_rate or experiment.learning_rate
        for _ in range(run_state.round):
            tick()
        while run_state.round < experiment.rounds:
            run_state.round += 1
            generator = np.random.default_rng([seed, run_state.round])
            mean_update = self._mean_update(run_state.parameters, contestant, code_table, generator)
            run_state.parameters = run_state.parameters + learning_rate * mean_update
            if run_state.round % experiment.interval == 0:
                run_state.points.append(self._evaluated(run_state))
            if checkpoint is not None and run_state.round % CHECKPOINT == 0:
                self.torch.save({"fingerprint": fingerprint, **asdict(run_state)}, checkpoint)
            tick()
        if checkpoint is not None:
            checkpoint.unlink(missing_ok=True)
        return run_state.points

    def _start(
        self,
        seed: int,
        checkpoint: Path | None,
        fingerprint: str,
    ) -> State:
        """The first state of a run, or where the checkpoint of the same run stopped."""
        if checkpoint is not None and checkpoint.is_file():
            saved_state = self.torch.load(checkpoint, map_location=self.device, weights_only=True)
            if saved_state["fingerprint"] == fingerprint:
                points = [Point(**point) for point in saved_state["points"]]
                parameters: torch.Tensor = saved_state["parameters"]
                return State(parameters=parameters, round=saved_state["round"], points=points)
        return State(parameters=self.initial(seed))

    def _mean_update(
        self,
        parameters: torch.Tensor,
        contestant: Contestant,
        codes: CodeTable | None,
        rng: np.random.Generator,
    ) -> torch.Tensor:
        """The mean of the updates of this round's clients, as the server decodes it."""
        torch, clip_bound = self.torch, contestant.clip
        # Clients come first, so that they are the same for every contestant.
        clients = rng.choice(len(self.clients), self.experiment.clients_per_round, replace=False)
        torch.nn.utils.vector_to_parameters(parameters, self.module.parameters())
        update_sum = torch.zeros_like(parameters)
        for client in clients.tolist():
            client_update = -self._gradient(*self.clients[client])
            if clip_bound is not None:
                client_update = client_update.clamp(-clip_bound, clip_bound)
            if codes is not None:
                assert clip_bound is not None, "a table has a clip"
                scaled_update = (client_update / clip_bound).cpu().numpy()
                reports = codes.report(scaled_update, rng) * np.float32(clip_bound)
                client_update = torch.as_tensor(reports, device=self.device)
            update_sum += client_update
        if contestant.deviation > 0:
            server_noise = rng.normal(0.0, contestant.deviation, update_sum.numel()).astype(
                np.float32
            )
            update_sum += torch.as_tensor(server_noise, device=self.device)
        return update_sum / self.experiment.clients_per_round

    def _gradient(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        mean_loss = self.torch.nn.functional.cross_entropy(self.module(x), y)
        gradients = self.torch.autograd.grad(mean_loss, list(self.module.parameters()))
        return self.torch.cat([gradient.reshape(-1) for gradient in gradients])

    def _evaluated(self, state: State) -> Point:
        torch = self.torch
        torch.nn.utils.vector_to_parameters(state.parameters, self.module.parameters())
        loss_sum, correct_count = 0.0, 0
        batches = zip(self.test_x.split(EVALUATED), self.test_y.split(EVALUATED), strict=True)
        with torch.no_grad():
            for features, labels in batches:
                scores = self.module(features)
                loss_sum += float(
                    torch.nn.functional.cross_entropy(scores, labels, reduction="sum")
                )
                correct_count += int((scores.argmax(dim=1) == labels).sum())
        record_count = len(self.test_y)
        return Point(
            round=state.round, loss=loss_sum / record_count, accuracy=correct_count / record_count
        )


@final
class FinishedRuns:
    """Finished runs in a file, a line of JSON each; without a file, in memory.

    Arguments:
        path: of the file; runs that it holds are not done again, and the run under way is saved
            beside it.
    """

    def __init__(self, path: Path | None) -> None:
        self.path = path
        stored_text = ""
        if path is not None and path.exists():
            stored_text = read_text(path)
        self.runs: dict[str, list[Point]] = {}
        for stored_line in stored_text.splitlines():
            run_facts = parse_object(stored_line, name=str(path), finite=False)
            try:
                points = [Point(**point) for point in run_facts["points"]]
                self.runs[run_facts["run"]] = points
            except (KeyError, TypeError):
                message = "holds a line that no run has written; name another file"
                raise FileFormatError(f"{path}: {message}") from None

    def run(
        self, simulation: Simulation, contestant: Contestant, seed: int, *, data: str, tick: Tick
    ) -> list[Point]:
        """The evaluations of a run, from the file if it is there."""
        run_facts = [data, asdict(simulation.experiment), contestant.fingerprint(), seed]
        run_key = hashlib.sha256(json.dumps(run_facts).encode()).hexdigest()[:32]
        if run_key in self.runs:
            for _ in range(simulation.experiment.rounds):
                tick()
            return self.runs[run_key]
        if self.path is None:
            evaluations = simulation.run(contestant, seed, tick=tick)
        else:
            checkpoint = self.path.with_suffix(f".{run_key[:8]}.pt")
            evaluations = simulation.run(contestant, seed, checkpoint=checkpoint, tick=tick)
            stored_line = {
                "run": run_key,
                "facts": run_facts,
                "points": [asdict(point) for point in evaluations],
            }
            with self.path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(stored_line) + "\n")
        self.runs[run_key] = evaluations
        return evaluations


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
    training_histories: dict[str, FloatArray] = {}
    for method_name, contestant in contestants.items():
        evaluated_runs = [
            finished.run(simulation, contestant, seed, data=data, tick=tick)
            for seed in range(seeds)
        ]
        evaluations = [
            [(point.round, point.loss, point.accuracy) for point in evaluated_run]
            for evaluated_run in evaluated_runs
        ]
        training_histories[method_name] = np.array(evaluations)
    return training_histories


def pseudo_writers(
    folder: str,
    clients: int = 3400,
    records: int = 17,
) -> datasets.Federation:
    """MNIST's training records in random parts of equal size, as many as the paper has devices."""
    image_data = datasets.idx_folder(folder)
    record_order = np.random.default_rng(0).permutation(len(image_data.train_y))[
        : clients * records
    ]
    client_records = record_order.reshape(clients, records)
    return datasets.Federation(
        clients=tuple(
            (image_data.train_x[record_numbers], image_data.train_y[record_numbers])
            for record_numbers in client_records
        ),
        test_x=image_data.test_x,
        test_y=image_data.test_y,
        classes=image_data.classes,
    )
