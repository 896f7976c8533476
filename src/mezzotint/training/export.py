"""Packed models in other programs' formats: PyTorch modules, safetensors, ONNX with weights of 4 and 8 bits.

ONNX graphs are written operation by operation from what torch.export writes down.
"""

from __future__ import annotations

import inspect
import json
import os
import warnings
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal, final

import numpy as np

from mezzotint.core import brought_by
from mezzotint.core.arguments import check_choice
from mezzotint.core.errors import ParameterError
from mezzotint.core.files import replacing
from mezzotint.core.sampler import pack
from mezzotint.training.models import map_arg, torch
from mezzotint.training.onnx_graph import BOOL, FLOAT, INT64, Dense, Graph
from mezzotint.training.packed import PackedModel

Node = torch.fx.Node
Sizes = int | Sequence[int]
_DTYPES = {"float32": torch.float32, "int64": torch.int64}


def traced(module: torch.nn.Module, shape: tuple[int, ...], inputs: str) -> Any:
    """What a module computes of any number of records, as a program of torch.export; in-place operations resolved.

    Raises:
        ParameterError: a forward pass that cannot be followed.
    """
    fused = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(
        False
    )  # attention in its parts, not in one operation of PyTorch's own
    try:
        with torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            records = torch.zeros(2, *shape, dtype=_DTYPES[inputs])
            any_number = ({0: torch.export.Dim.DYNAMIC},)
            program = torch.export.export(module, (records,), dynamic_shapes=any_number)
            if any(
                getattr(getattr(node.target, "_schema", None), "is_mutable", False)
                for node in program.graph.nodes
            ):
                program = program.run_decompositions({})
    except (RuntimeError, ValueError, TypeError, IndexError) as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        remedy = (
            f"torch.export cannot follow it with any number of records of shape {shape}: {reason}"
        )
        raise ParameterError("module", type(module).__name__, remedy) from error
    finally:
        torch.backends.mha.set_fastpath_enabled(fused)
    # What held for two records only is written down as a range of their number, or as a guard.
    limits = [
        r for r in program.range_constraints.values() if r.lower > 2 or str(r.upper) != "int_oo"
    ]
    ranges = [f"{r.lower} to {r.upper} records" for r in limits]
    if looked := [*ranges, *getattr(program, "_guards_code", ())]:
        remedy = f"its forward pass looks at the number of records ({looked[0]}); what is exported holds for any number"
        raise ParameterError("module", type(module).__name__, remedy)
    return program


@final
class Operations:
    """Writes a traced module into a graph, operation by operation.

    Arguments:
        graph: to write into; its packed tensors are the module's parameters.
        module: what was traced.
        program: of `traced`.
    Raises:
        ParameterError: an operation, or a setting of one, that is not in the list; none is left out or approximated.
    Guarantees: what depends on neither features nor parameters is computed here, once, by PyTorch itself.
    """

    def __init__(self, graph: Graph, module: torch.nn.Module, program: Any) -> None:
        self.graph = graph
        self.names: dict[Node, Any] = {}
        """What values are called in the graph; a list for those of several tensors."""
        self.known: dict[Node, torch.Tensor] = {}
        self.weights: dict[Node, str] = {}
        own = {id(parameter): name for name, parameter in module.named_parameters()}
        parameters = {
            name: own[id(parameter)]
            for name, parameter in module.named_parameters(remove_duplicate=False)
        }
        signature = program.graph_signature
        buffers, plain = signature.inputs_to_buffers, signature.inputs_to_lifted_tensor_constants
        tensors = {**dict(module.named_buffers(remove_duplicate=False)), **program.constants}
        records = None
        for node in program.graph.nodes:
            if node.op == "placeholder" and node.name in signature.inputs_to_parameters:
                self.weights[node] = parameters[signature.inputs_to_parameters[node.name]]
            elif node.op == "placeholder" and (node.name in buffers or node.name in plain):
                self.known[node] = tensors[buffers.get(node.name) or plain[node.name]]
            elif node.op == "placeholder":
                self.names[node], records = "features", node.meta["val"].shape[0]
            elif node.op == "output":
                self._end(node.args[0], records)
            elif node.users:
                self._write(node)

    def _end(self, results: Sequence[Any], records: Any) -> None:
        value = (
            results[0].meta.get("val")
            if len(results) == 1 and isinstance(results[0], Node)
            else None
        )
        if (
            value is None
            or value.dtype != torch.float32
            or str(value.shape[:1]) != str(torch.Size([records]))
        ):
            raise ParameterError(
                "module", str(value), "it has to give one tensor of floats, records first"
            )
        self.last, self.results = self.of(results[0]), tuple(value.shape[1:])

    def _write(self, node: Node) -> None:
        """Adds what a node computes; sizes are taken where they are used."""
        if not isinstance(node.meta.get("val"), torch.Tensor | list | tuple):
            return
        random = torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ())
        if not random and all(one in self.known for one in node.all_input_nodes):
            arguments: Any = map_arg((node.args, node.kwargs), self.known.__getitem__)
            self.known[node] = node.target(*arguments[0], **arguments[1])  # type: ignore[operator]
            return
        several = (
            node.meta["val"] if isinstance(node.meta["val"], list | tuple) else [node.meta["val"]]
        )
        writer = (
            WRITERS.get(str(node.target)) if all(one.dtype in _ONNX for one in several) else None
        )
        if writer is None or not _takes(writer, self, node, *node.args, **node.kwargs):
            raise _refusal(node)
        self.names[node] = writer(self, node, *node.args, **node.kwargs)
        if self.names[node] is None:
            raise _refusal(node)

    def of(self, value: object, kind: torch.dtype = torch.float32) -> str:
        """The name of a value, or of a number, in the graph, as a type."""
        if not isinstance(value, Node):
            return self.graph.constant(torch.as_tensor(value, dtype=kind).numpy())
        if value in self.known:
            return self.graph.constant(self.known[value].to(kind).numpy())
        if value not in self.weights and value not in self.names:
            raise _refusal(next(iter(value.users)))  # it computes with a size
        name = (
            self.graph.weight(self.weights[value]) if value in self.weights else self.names[value]
        )
        own = value.meta["val"].dtype
        return name if own == kind else self.graph.node("Cast", name, to=_ONNX[kind])

    def like(self, node: Node, value: object) -> str:
        """The name of an operand, in the type of a node's result."""
        return self.of(value, node.meta["val"].dtype)

    def integers(self, values: Sequence[int]) -> str:
        """The name of a constant of integers."""
        return self.of(list(values), torch.int64)

    def linear(self, _: Node, x: Node, weight: Node, bias: Node | None = None) -> str:
        if weight in self.weights:
            out = self.graph.dense(self.weights[weight], self.of(x))
        else:
            out = self.graph.node(
                "MatMul", self.of(x), self.graph.node("Transpose", self.of(weight), perm=[1, 0])
            )
        if bias is None:
            return out
        if weight not in self.weights or self.graph.operator == "MatMulNBits":
            return self.graph.node("Add", out, self.of(bias))
        return self._subtract(out, bias)

    def _subtract(self, product: str, bias: Node) -> str:
        """A product of integer weights plus a bias, as product - (-bias).

        onnxruntime merges a product and an addition into a Gemm before it looks for integers, and
        then unpacks the weights at every call.
        """
        if bias in self.weights:
            name = self.weights[bias]
            negative = self.graph.constant(-self.graph.values[name], f"{name}.negative")
        elif bias in self.known:
            negative = self.graph.constant(-self.known[bias].numpy())
        else:
            negative = self.graph.node("Neg", self.of(bias))
        return self.graph.node("Sub", product, negative)

    def convolution(
        self, _: Node, x: Node, weight: Node, bias: Node | None = None, stride: Sizes = 1, padding: Sizes = 0,
        dilation: Sizes = 1, groups: int = 1,
    ) -> str:  # fmt: skip
        given = [self.of(x), self.of(weight), *([] if bias is None else [self.of(bias)])]
        return self.graph.node(
            "Conv",
            *given,
            strides=_pair(stride),
            pads=_pair(padding) * 2,
            dilations=_pair(dilation),
            group=groups,
        )

    def pool(
        self,
        _: Node,
        x: Node,
        size: Sizes,
        stride: Sizes = (),
        padding: Sizes = 0,
        dilation: Sizes = 1,
        up: bool = False,
    ) -> str:
        return self.graph.node(
            "MaxPool", self.of(x), kernel_shape=_pair(size), strides=_pair(stride or size), pads=_pair(padding) * 2,
            dilations=_pair(dilation), ceil_mode=int(up),
        )  # fmt: skip

    def embedding(self, _: Node, weight: Node, indices: Node, *__: object) -> str:
        # Settings beyond these are about gradients.
        rank, chosen = indices.meta["val"].dim(), self.of(indices, torch.int64)
        dense = any(str(user.target) == LINEAR and user.args[1] is weight for user in weight.users)
        if weight not in self.weights or not dense or self.graph.operator != "DequantizeLinear":
            return self.graph.node("Gather", self.of(weight), chosen, axis=0)
        # The weight of a dense layer too: it is stored once, turned over.
        turned, rest = self.graph.integers(self.graph.tensors[self.weights[weight]], axis=1)
        if rest is not None:
            turned = self.graph.node("Add", turned, self.graph.constant(rest))
        found = self.graph.node("Gather", turned, chosen, axis=1)
        return self.graph.node("Transpose", found, perm=[*range(1, rank + 1), 0])

    def layer_norm(
        self, _: Node, x: Node, shape: Sequence[int], weight: Node | None = None, bias: Node | None = None,
        eps: float = 1e-5, __: bool = True,
    ) -> str:  # fmt: skip
        gain = self.of(np.ones(shape) if weight is None else weight)
        given = [self.of(x), gain, *([] if bias is None else [self.of(bias)])]
        return self.graph.node("LayerNormalization", *given, axis=-len(shape), epsilon=eps)

    def group_norm(
        self, _: Node, x: Node, groups: int, weight: Node | None = None, bias: Node | None = None, eps: float = 1e-5,
        __: bool = True,
    ) -> str:  # fmt: skip
        channels = x.meta["val"].shape[1]
        gain = self.of(np.ones(channels) if weight is None else weight)
        shift = self.of(np.zeros(channels) if bias is None else bias)
        return self.graph.node(
            "GroupNormalization", self.of(x), gain, shift, num_groups=groups, epsilon=eps
        )

    def attention(
        self, _: Node, query: Node, key: Node, value: Node, mask: Node | None = None, dropout: float = 0.0,
        causal: bool = False, *, scale: float | None = None,
    ) -> str | None:  # fmt: skip
        tokens, others, width = (
            query.meta["val"].shape[-2],
            key.meta["val"].shape[-2],
            key.meta["val"].shape[-1],
        )
        if dropout or not all(isinstance(size, int) for size in (tokens, others, width)):
            return None
        across = list(range(key.meta["val"].dim()))
        across[-2:] = across[:-3:-1]
        turned = self.graph.node("Transpose", self.of(key), perm=across)
        factor = self.of(width**-0.5 if scale is None else scale)
        scores = self.graph.node("MatMul", self.graph.node("Mul", self.of(query), factor), turned)
        if causal:
            scores = self.graph.node(
                "Add", scores, self.of(np.triu(np.full((tokens, others), -np.inf), 1))
            )
        if mask is not None and mask.meta["val"].dtype == torch.bool:
            scores = self.graph.node("Where", self.of(mask, torch.bool), scores, self.of(-np.inf))
        elif mask is not None:
            scores = self.graph.node("Add", scores, self.of(mask))
        return self.graph.node(
            "MatMul", self.graph.node("Softmax", scores, axis=-1), self.of(value)
        )

    def softmax(self, _: Node, x: Node, axis: int, kind: object = None) -> str | None:
        return self.graph.node("Softmax", self.of(x), axis=axis) if kind is None else None

    def gelu(self, _: Node, x: Node, *, approximate: str = "none") -> str:
        return self.graph.node("Gelu", self.of(x), approximate=approximate)

    def plain(self, _: Node, x: Node, *, kind: str) -> str:
        return self.graph.node(kind, self.of(x))

    def same(self, _: Node, x: Node, *__: object, **___: object) -> str:
        return self.of(x, x.meta["val"].dtype)

    def dropout(self, node: Node, x: Node, _: float, train: bool) -> str | None:
        return None if train else self.same(node, x)

    def pairwise(
        self, node: Node, x: object, y: object, *, kind: str, alpha: float = 1
    ) -> str | None:
        return None if alpha != 1 else self.graph.node(kind, self.like(node, x), self.like(node, y))

    def product(self, _: Node, x: Node, y: Node) -> str:
        return self.graph.node("MatMul", self.of(x), self.of(y))

    def product_and_sum(
        self, node: Node, added: Node, x: Node, y: Node, *, beta: float = 1, alpha: float = 1
    ) -> str | None:
        return (
            None
            if (beta, alpha) != (1, 1)
            else self.graph.node("Add", self.product(node, x, y), self.of(added))
        )

    def reduction(
        self,
        _: Node,
        x: Node,
        axes: int | Sequence[int] | None,
        keep: bool = False,
        *,
        kind: str,
        dtype: object = None,
    ) -> str | None:
        if dtype is not None or axes is None:
            return None
        listed = self.integers([axes] if isinstance(axes, int) else axes)
        return self.graph.node(kind, self.of(x), listed, keepdims=int(keep))

    def shaped(self, node: Node, x: Node, *_: object) -> str | None:
        """Any operation that keeps the values in their order: the result's shape says all, its one open size is -1."""
        sizes = [size if isinstance(size, int) else -1 for size in node.meta["val"].shape]
        if sizes.count(-1) > 1:
            return None
        return self.graph.node("Reshape", self.like(node, x), self.integers(sizes))

    def transposed(self, node: Node, x: Node, first: int = 0, second: int = 1) -> str:
        axes = list(range(x.meta["val"].dim()))
        axes[first], axes[second] = axes[second], axes[first]
        return self.permuted(node, x, axes)

    def permuted(self, node: Node, x: Node, axes: Sequence[int]) -> str:
        return self.graph.node(
            "Transpose", self.like(node, x), perm=[axis % len(axes) for axis in axes]
        )

    def expanded(self, node: Node, x: Node, sizes: Sequence[Any]) -> str | None:
        parts: list[str] = []
        for size in sizes:
            if isinstance(size, int):
                parts.append(self.integers([max(size, 1)]))  # both -1 there and 1 here keep what is
            elif str(size.target) == "aten.sym_size.int" and size.args[0] in self.names:
                start = size.args[1] % size.args[0].meta["val"].dim()
                parts.append(
                    self.graph.node("Shape", self.names[size.args[0]], start=start, end=start + 1)
                )
            else:
                return None
        return self.graph.node(
            "Expand", self.like(node, x), self.graph.node("Concat", *parts, axis=0)
        )

    def chosen(self, node: Node, x: Node, axis: int, index: object) -> str | None:
        if not isinstance(index, int):
            return None
        return self.graph.node("Gather", self.like(node, x), self.of(index, torch.int64), axis=axis)

    def cut(
        self,
        node: Node,
        x: Node,
        axis: int = 0,
        start: object = None,
        end: object = None,
        step: int = 1,
    ) -> str | None:
        first, last = start or 0, _END if end is None else end
        if not isinstance(first, int) or not isinstance(last, int):
            return None
        if (first, last, step) == (0, _END, 1):
            return self.same(node, x)
        return self.graph.node(
            "Slice", self.like(node, x), *(self.integers([i]) for i in (first, last, axis, step))
        )

    def split(self, node: Node, x: Node, _: object, axis: int = 0) -> list[str] | None:
        sizes = [part.shape[axis] for part in node.meta["val"]]
        if not all(isinstance(size, int) for size in sizes):
            return None
        given = self.of(x, node.meta["val"][0].dtype), self.integers(sizes)
        return self.graph.add("Split", *given, outputs=len(sizes), axis=axis)

    def unbound(self, node: Node, x: Node, axis: int = 0) -> list[str]:
        given, count = self.of(x, node.meta["val"][0].dtype), len(node.meta["val"])
        return [
            self.graph.node("Gather", given, self.of(i, torch.int64), axis=axis)
            for i in range(count)
        ]

    def part(self, _: Node, several: Node, index: int) -> str:
        return self.names[several][index]

    def joined(self, node: Node, several: Sequence[Node], axis: int = 0) -> str:
        return self.graph.node("Concat", *(self.like(node, one) for one in several), axis=axis)

    def filled(self, node: Node, x: Node, mask: Node, value: float) -> str:
        return self.graph.node(
            "Where", self.of(mask, torch.bool), self.like(node, value), self.like(node, x)
        )


def _takes(function: Callable[..., object], *arguments: object, **settings: object) -> bool:
    try:
        inspect.signature(function).bind(*arguments, **settings)
    except TypeError:
        return False
    return True


def _pair(value: Sizes) -> list[int]:
    both = [value] if isinstance(value, int) else list(value)
    return both * (2 // len(both))


def _refusal(node: Node) -> ParameterError:
    """Names the layer that an operation stands in, and the operation with its settings."""
    layers: list[Any] = list((node.meta.get("nn_module_stack") or {}).values())
    kind = str(layers[-1][1]).rsplit(".", 1)[-1] if layers else "module"
    known = ", ".join(
        sorted({name.split(".")[1].lstrip("_") for name in WRITERS if name.startswith("aten")})
    )
    settings = ", ".join(
        [
            *map(str, node.args),
            *(f"{name}={value}" for name, value in node.kwargs.items() if value is not None),
        ]
    )
    return ParameterError(
        "module", f"{kind}: {node.target}({settings})", f"what is exported is {known}"
    )


_END = 2**63 - 1
_ONNX = {torch.float32: FLOAT, torch.int64: INT64, torch.bool: BOOL}

LINEAR = "aten.linear.default"
_WRITTEN: tuple[tuple[Callable[..., object], str], ...] = (
    (Operations.linear, "linear.default"),
    (Operations.convolution, "conv2d.default"),
    (Operations.pool, "max_pool2d.default"),
    (Operations.embedding, "embedding.default"),
    (Operations.layer_norm, "layer_norm.default"),
    (Operations.group_norm, "group_norm.default"),
    (Operations.attention, "scaled_dot_product_attention.default"),
    (Operations.softmax, "softmax.int"),
    (Operations.gelu, "gelu.default"),
    (Operations.dropout, "dropout.default"),
    (Operations.product, "matmul.default bmm.default"),
    (Operations.product_and_sum, "baddbmm.default"),
    (Operations.transposed, "transpose.int t.default"),
    (Operations.permuted, "permute.default"),
    (Operations.expanded, "expand.default"),
    (Operations.chosen, "select.int"),
    (Operations.cut, "slice.Tensor"),
    (Operations.split, "chunk.default split.Tensor split_with_sizes.default"),
    (Operations.unbound, "unbind.int"),
    (Operations.joined, "cat.default"),
    (Operations.filled, "masked_fill.Scalar"),
    (
        Operations.shaped,
        "view.default _unsafe_view.default reshape.default flatten.using_ints unflatten.int",
    ),
    (Operations.shaped, "unsqueeze.default squeeze.dim squeeze.dims squeeze.default"),
    (Operations.same, "contiguous.default clone.default detach.default alias.default"),
    *(
        (partial(Operations.plain, kind=kind), f"{kind.lower()}.default")
        for kind in ("Tanh", "Relu", "Sigmoid")
    ),
    *(
        (partial(Operations.pairwise, kind=kind), f"{kind.lower()}.Tensor")
        for kind in ("Add", "Sub", "Mul", "Div")
    ),
    (partial(Operations.reduction, kind="ReduceMean"), "mean.dim"),
    (partial(Operations.reduction, kind="ReduceSum"), "sum.dim_IntList"),
)
WRITERS: dict[str, Callable[..., object]] = {
    f"aten.{name}": writer for writer, names in _WRITTEN for name in names.split()
}
WRITERS["<built-in function getitem>"] = Operations.part
"""How each operation that is exported is written, by its name in the program."""


def save_safetensors(
    packed: PackedModel, path: str | os.PathLike[str], *, overwrite: bool = False
) -> int:
    """Writes packed codes, scales and levels; returns the size of the file.

    For a tensor `name`: `name` holds its codes without gaps, `bits` each, first code in the lowest bits (uint8, flat);
    `name.scale` one float64, or one float32 for each index of the first axis; `name.shape` int64; `levels` float64. A
    weight is scale * levels[code]; where there is `name.chosen` (uint8, channels x 2**bits), scale *
    levels[chosen[channel, code]]. The metadata hold `bits` and `note` (JSON).
    """
    with brought_by("export"):
        from safetensors.numpy import save_file
    tensors: dict[str, Any] = {"levels": np.asarray(packed.levels, dtype=np.float64)}
    for tensor in packed.tensors:
        tensors[tensor.name] = np.frombuffer(
            pack(tensor.codes, packed.bits_of(tensor)), dtype=np.uint8
        ).copy()
        if tensor.chosen is not None:
            tensors[f"{tensor.name}.chosen"] = tensor.chosen
        tensors[f"{tensor.name}.scale"] = np.atleast_1d(tensor.scale)
        tensors[f"{tensor.name}.shape"] = np.array(tensor.codes.shape, dtype=np.int64)
    metadata = {
        "format": "mezzotint",
        "bits": str(packed.bits),
        "note": json.dumps(dict(packed.note), sort_keys=True),
    }
    with replacing(path, overwrite=overwrite) as temporary:
        save_file(tensors, temporary, metadata=metadata)
        return Path(temporary).stat().st_size


def save_onnx(
    packed: PackedModel,
    path: str | os.PathLike[str],
    *,
    module: torch.nn.Module | None = None,
    shape: tuple[int, ...] | None = None,
    inputs: Literal["float32", "int64"] = "float32",
    dense: Dense = "DequantizeLinear",
    exact: bool = False,
    overwrite: bool = False,
) -> int:
    """Writes an ONNX graph whose weights are integers of 4 bits (at most 16 levels) or 8; returns the file's size.

    Arguments:
        packed: on even levels.
        path: of the file.
        module: whose forward pass takes one tensor, records first, and gives one, made of dense layers, convolutions,
            max pools, embeddings, attention, norms of layers and groups, activations, sums and products, and changes of
            shape, in any order; by default the one that the note describes. torch.export follows the pass.
        shape: of one record's features; the note's by default.
        inputs: what features are: "float32", or "int64" for tokens.
        dense: the operator of dense layers. "DequantizeLinear" is in the standard and has integers as zero points;
            "MatMulNBits", of at most 16 levels, is onnxruntime's own: faster, and takes the middle between two levels
            as it is.
        exact: "MatMulNBits" multiplies inputs as they are. If not, it rounds them to 8 bits where zero points are
            integers. The operator of the standard leaves that to the runtime: onnxruntime rounds, unless its session
            option session.qdq_matmulnbits_accuracy_level is 1.
    Raises:
        ParameterError: levels that are not even, an operation of another kind, a pass that torch.export cannot follow
            (where it looks at values, or at the number of records), a shape that is not known, more than 16 levels with
            "MatMulNBits".
        MissingExtraError: onnx is not installed.
    Guarantees: weights are those of `packed.values()` up to rounding in float32; those of one dimension (biases, norms)
        are stored as floats.
    """
    with brought_by("export"):
        import onnx
    size = shape or tuple(packed.note.get("architecture", {}).get("shape", ()))
    if not size:
        raise ParameterError(
            "shape", None, "the packed model does not say what a record looks like; give its shape"
        )
    check_choice("inputs", inputs, _DTYPES)
    whole = packed.to_module(module).eval()
    note = json.dumps(dict(packed.note), sort_keys=True)
    model = written(Graph(onnx.helper, packed, dense, exact=exact), whole, size, inputs, note=note)
    onnx.checker.check_model(model, full_check=True)
    with replacing(path, overwrite=overwrite) as temporary:
        return Path(temporary).write_bytes(model.SerializeToString())


def written(
    graph: Graph, module: torch.nn.Module, shape: tuple[int, ...], inputs: str, *, note: str
) -> Any:
    """The ONNX model of what a module computes, with weights as the graph stores them."""
    done = Operations(graph, module, traced(module, shape, inputs))
    return graph.model(done.last, shape, _ONNX[_DTYPES[inputs]], done.results, note=note)


def export_model(
    packed: PackedModel, path: str | os.PathLike[str], *, overwrite: bool = False, **settings: Any
) -> int:
    """Writes a packed model for other programs, by the ending of the path.

    Arguments:
        packed: the model.
        path: ending in .onnx (see `save_onnx`, which takes the settings) or .safetensors (see
            `save_safetensors`).
        overwrite: replaces the file if it exists.
    Returns: the size of the file in bytes.
    Raises:
        ParameterError: another ending, an existing file.
    """
    savers = {".onnx": save_onnx, ".safetensors": save_safetensors}
    ending = Path(path).suffix
    if ending not in savers:
        remedy = f"the ending says the format; use one of {', '.join(savers)}"
        raise ParameterError("path", ending, remedy)
    return savers[ending](packed, path, overwrite=overwrite, **settings)
