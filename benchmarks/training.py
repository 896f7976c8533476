"""Time per step against Opacus's own DP-SGD on the same model and batches, and model bytes against float32.

Run: python benchmarks/training.py [--steps 150] [--batch 64]
"""

from __future__ import annotations

import argparse
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import opacus
import torch
from opacus.optimizers import DPOptimizer
from rich.console import Console
from rich.table import Table

from mezzotint import families
from mezzotint.datasets import Dataset
from mezzotint.training import methods, models
from mezzotint.training.packed import pack_weights
from mezzotint.training.projection import projection
from mezzotint.training.trainer import Settings, Trainer

TARGET = 1.25
ROUNDS = 9


def images(records: int = 4000) -> Dataset:
    """Random images: the time of a step does not depend on what they show."""
    rng = np.random.default_rng(0)
    x, y = rng.random((records, 28, 28), dtype=np.float32), rng.integers(0, 10, records)
    return Dataset(name="random", train_x=x, train_y=y, test_x=x[:100], test_y=y[:100], classes=10)


def opacus_steps(data: Dataset, model: str, batch: int, steps: int) -> Callable[[], None]:
    """Opacus alone: GradSampleModule and DPOptimizer around SGD, on Poisson batches drawn by Opacus's sampler."""
    task = models.task(model, shape=(28, 28), classes=10)
    module = opacus.GradSampleModule(task.module)
    optimizer = DPOptimizer(
        torch.optim.SGD(module.parameters(), lr=0.1), noise_multiplier=1.0, max_grad_norm=0.5, expected_batch_size=batch
    )
    x, y = torch.from_numpy(data.train_x), torch.from_numpy(data.train_y)
    sampler = opacus.utils.uniform_sampler.UniformWithReplacementSampler(
        num_samples=len(x), sample_rate=batch / len(x), steps=(ROUNDS + 1) * steps
    )
    batches = iter(sampler)
    criterion = torch.nn.CrossEntropyLoss()

    def run() -> None:
        for _ in range(steps):
            chosen = next(batches)
            optimizer.zero_grad()
            criterion(module(x[chosen]), y[chosen]).backward()
            optimizer.step()

    return run


def our_steps(data: Dataset, model: str, method: Any, batch: int, steps: int) -> Callable[[], None]:
    """The same through our trainer, private draws included."""
    task = models.task(model, shape=(28, 28), classes=10)
    settings = Settings(steps=(ROUNDS + 1) * steps, batch_size=batch, step_size=0.1)
    trainer = Trainer(data=data, task=task, method=method, settings=settings)

    def run() -> None:
        for _ in range(steps):
            trainer.step()

    return run


def milliseconds(contenders: dict[str, Callable[[], None]], steps: int) -> dict[str, float]:
    """Processor time, least over rounds in which all contenders take turns, after a round to warm up.

    The least, as whatever else the machine does can only add.
    """
    taken: dict[str, list[float]] = {name: [] for name in contenders}
    for round_ in range(ROUNDS + 1):
        for name, run in contenders.items():
            begin = time.process_time()
            run()
            if round_:
                taken[name].append((time.process_time() - begin) / steps * 1e3)
    return {name: min(values) for name, values in taken.items()}


def exported(bits: int | None, folder: Path, *, float_inputs: bool = False) -> tuple[int, float]:
    """Bytes of four dense layers of 1024 x 1024 in ONNX, and us of onnxruntime for one record; bits None for floats.

    Unless told otherwise, onnxruntime rounds the inputs of layers whose weights are integers to 8 bits.
    """
    module = torch.nn.Sequential(*(torch.nn.Linear(1024, 1024) for _ in range(4)))
    place = folder / f"{bits}.onnx"
    if bits is None:
        nodes, constants, name = [], [], "features"
        for i, layer in enumerate(module):
            for key, value in ((f"w{i}", layer.weight.T), (f"b{i}", layer.bias)):
                constants.append(onnx.numpy_helper.from_array(value.detach().numpy().copy(), key))
            nodes.append(onnx.helper.make_node("Gemm", [name, f"w{i}", f"b{i}"], [f"y{i}"]))
            name = f"y{i}"
        ends = [onnx.helper.make_tensor_value_info(key, 1, ["records", 1024]) for key in ("features", name)]
        graph = onnx.helper.make_graph(nodes, "floats", ends[:1], ends[1:], constants)
        onnx.save(onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 21)], ir_version=10), place)
    else:
        weights = {name: parameter.detach().numpy() for name, parameter in module.named_parameters()}
        pack_weights(weights, bits=bits).export(place, module=module, shape=(1024,), overwrite=True)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    if float_inputs:
        options.add_session_config_entry("session.qdq_matmulnbits_accuracy_level", "1")
    session = onnxruntime.InferenceSession(place, options, providers=["CPUExecutionProvider"])
    record, taken = {"features": np.random.default_rng(0).random((1, 1024), dtype=np.float32)}, []
    for _ in range(300):
        begin = time.perf_counter()
        session.run(None, record)
        taken.append(time.perf_counter() - begin)
    return place.stat().st_size, min(taken) * 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=60, help="steps per measurement")
    parser.add_argument("--batch", type=int, default=64, help="expected records per batch")
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.set_flush_denormal(True)  # saturated random models would otherwise time the processor, not the method
    # Opacus listens with full backward hooks on modules whose inputs need no gradient; torch remarks on that.
    warnings.filterwarnings("ignore", message="Full backward hook is firing")
    data = images()
    noisy = {"noise_multiplier": 1.0, "clip_norm": 0.5}
    table, other = (families.rqm(lower=-1.0, upper=1.0, levels=m, extension=1.0, q=0.42) for m in (16, 17))
    ours = {
        "DP-SGD": methods.NoisySGD(**noisy),
        "projected, stochastic, 4 bits": methods.NoisySGD(**noisy, projection=projection(bits=4), bound=0.1),
        "RQP, q=.9, 4 bits": methods.NoisySGD(
            **noisy, projection=projection(bits=4, rounding="nearest", q=0.9), bound=0.1
        ),
        "quantized gradients, 16 levels": methods.QuantizedSGD(table=table, clip=0.1),
        # A jump at 0, which floats crowd around: its knots are searched for.
        "the same, 17 levels, no even grid": methods.QuantizedSGD(table=other, clip=0.1),
    }
    screen = Console(width=110)
    times = Table(title=f"one thread, batch {options.batch}; ratio to Opacus, target at most {TARGET}")
    for name in ("model", "weights", "method", "CPU ms per step", "ratio"):
        times.add_column(name, justify="right" if name in ("weights", "CPU ms per step", "ratio") else "left")
    sizes = Table(title="bytes of a model")
    for name in ("model", "float32", "8 bits", "4 bits", "2 bits", "4 bits, ratio"):
        sizes.add_column(name, justify="left" if name == "model" else "right")
    for model in ("softmax", "cnn"):
        contenders = {"Opacus DP-SGD": opacus_steps(data, model, options.batch, options.steps)}
        contenders |= {
            name: our_steps(data, model, method, options.batch, options.steps) for name, method in ours.items()
        }
        module = models.task(model, shape=(28, 28), classes=10).module
        weights = {name: parameter.detach().numpy() for name, parameter in module.named_parameters()}
        count = sum(value.size for value in weights.values())
        found = milliseconds(contenders, options.steps)
        for name, value in found.items():
            times.add_row(model, f"{count:,}", name, f"{value:.3f}", f"{value / found['Opacus DP-SGD']:.2f}")
        packed = {bits: pack_weights(weights, bits=bits).packed_bytes for bits in (8, 4, 2)}
        sizes.add_row(
            model, f"{4 * count:,}", *(f"{packed[bits]:,}" for bits in (8, 4, 2)), f"{packed[4] / (4 * count):.4f}"
        )
    runs = Table(title="four dense layers of 1024 x 1024 run by onnxruntime, one record, one thread")
    for name in ("weights", "bytes", "us", "bytes, ratio", "time, ratio"):
        runs.add_column(name, justify="left" if name == "weights" else "right")
    with tempfile.TemporaryDirectory() as folder:
        found = {bits: exported(bits, Path(folder)) for bits in (None, 8, 4, 2)}
    for bits, (size, taken) in found.items():
        label = "float32" if bits is None else f"{bits} bits"
        runs.add_row(
            label, f"{size:,}", f"{taken:.0f}", f"{size / found[None][0]:.3f}", f"{taken / found[None][1]:.2f}"
        )
    screen.print(times)
    screen.print(sizes)
    screen.print(runs)


if __name__ == "__main__":
    main()
