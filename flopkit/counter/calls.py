"""One call of an operator as a formula sees it: arguments by name, what it reads and what it writes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any


def name_of(func: Any) -> str:
    """``aten::mm`` of ``torch.ops.aten.mm.default``: the operator without its overload.

    >>> import torch
    >>> name_of(torch.ops.aten.mm.default)
    'aten::mm'
    """
    schema = getattr(func, "_schema", None)
    if schema is not None:
        return str(schema.name)
    name = getattr(func, "__name__", None)  # a higher-order operator
    return f"{getattr(func, 'namespace', 'higher_order')}::{name() if callable(name) else name or func}"


def tensors(value: Any) -> Iterator[Any]:
    """The tensors in *value*, lists, tuples and dicts opened."""
    import torch

    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (list, tuple, dict)):
        for item in value.values() if isinstance(value, dict) else value:
            yield from tensors(item)


def numel(tensor: Any) -> int:
    """Numbers in *tensor*, as a Python int."""
    return int(tensor.numel())


def extent(tensor: Any) -> int:
    """Bytes that *tensor* stands on: an expanded dimension (stride 0) is read once, and so is what windows share; packed and sparse
    layouts by what they hold.

    >>> import torch
    >>> extent(torch.zeros(3, 1).expand(3, 100)), extent(torch.zeros(10).unfold(0, size=3, step=1))
    (12, 40)
    """
    import torch

    layout, width = tensor.layout, int(tensor.element_size())
    if layout is torch.sparse_coo:
        return extent(tensor._indices()) + extent(tensor._values())
    if layout in (torch.sparse_csr, torch.sparse_bsr):
        return sum(map(extent, (tensor.crow_indices(), tensor.col_indices(), tensor.values())))
    if layout in (torch.sparse_csc, torch.sparse_bsc):
        return sum(map(extent, (tensor.ccol_indices(), tensor.row_indices(), tensor.values())))
    if layout is not torch.strided or tensor.is_nested:  # jagged, mkldnn: its numbers
        return numel(tensor) * width
    count = reach = 1
    for length, stride in zip(tensor.shape, tensor.stride(), strict=True):
        if stride != 0 or length == 0:
            count *= int(length)
            reach += (int(length) - 1) * int(stride)
    return min(count, reach) * width if count else 0


@dataclass(eq=False, repr=False)
class OpCall:
    """One call: `func` with its arguments, and its result `out`.

    ``call["weight"]`` is the argument of that name, its default where it was not given. ``call.get("weight")`` is None where the
    operator has no such argument.
    """

    func: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    out: Any
    node: Any = None  # of autograd, in a backward pass

    @property
    def name(self) -> str:
        """The operator without its overload, such as ``aten::mm``."""
        return name_of(self.func)

    @cached_property
    def named(self) -> dict[str, Any]:
        """All arguments by their name in the operator's schema, defaults filled in."""
        schema = getattr(self.func, "_schema", None)
        arguments = schema.arguments if schema is not None else ()
        by_place = dict(zip([each.name for each in arguments if not each.kwarg_only], self.args, strict=False))
        return {each.name: self.kwargs.get(each.name, each.default_value) for each in arguments} | by_place

    def __getitem__(self, name: str) -> Any:
        return self.named[name]

    def get(self, name: str, default: Any = None) -> Any:
        """The argument *name*, or *default* where the operator has none of that name."""
        return self.named.get(name, default)

    @property
    def gradient(self) -> Any:
        """The gradient that a backward operator starts from, by whichever name this torch has for it; None in a forward pass."""
        return next((self.named[name] for name in ("grad_output", "grad_out", "grad") if name in self.named), None)

    @property
    def inputs(self) -> list[Any]:
        """The tensors among the arguments, each once."""
        return list({id(t): t for t in tensors((self.args, self.kwargs))}.values())

    @property
    def outputs(self) -> list[Any]:
        """The tensors of the result, each once."""
        return list({id(t): t for t in tensors(self.out)}.values())

    @property
    def dtype(self) -> str:
        """Number format of the operands, by torch's name: that of the first tensor with two dimensions, or of the first one.

        A bias or a scale has fewer dimensions than what is multiplied; a weight that is packed more tightly comes after.
        """
        if self.name.startswith("quantized::"):  # activations may come in float32, and are rounded inside
            return "qint8"
        inputs = self.inputs
        operand = next((t for t in inputs if t.dim() > 1), inputs[0] if inputs else None)
        return "" if operand is None else str(operand.dtype).removeprefix("torch.")

    def bytes(self) -> int:
        """Compulsory traffic: each input read once, each output written once.

        An argument that is changed in place is read and written; one that only receives (``out=``, ``copy_``, ``fill_``) is
        written.
        """
        written, only_written = self.changed()
        results = {**{id(t): t for t in self.outputs}, **written}
        return sum(extent(t) for t in self.inputs if id(t) not in only_written) + sum(map(extent, results.values()))

    def changed(self) -> tuple[dict[int, Any], set[int]]:
        """The tensors that the operator writes to, by identity, and which of them it does not read."""
        schema = getattr(self.func, "_schema", None)
        written: dict[int, Any] = {}
        only, read = set[int](), set[int]()
        if schema is None or not schema.is_mutable:
            return written, only
        receives = self.name.rsplit("::", 1)[-1] in RECEIVERS
        for argument in schema.arguments:
            found = {id(tensor): tensor for tensor in tensors(self.named[argument.name])}
            if argument.alias_info is None or not argument.alias_info.is_write:
                read |= found.keys()
            else:
                written |= found
                only |= found.keys() if argument.is_out or receives else set()
        return written, only - read  # x.copy_(x) reads after all


RECEIVERS = frozenset(
    "copy_ _foreach_copy_ fill_ zero_ _foreach_zero_ uniform_ normal_ random_ bernoulli_ exponential_ geometric_ log_normal_ cauchy_ "
    "set_ resize_".split()
)
