"""The methods of quantisation that are read: what each says of its weights."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from flopkit import dtypes
from flopkit.models.checkpoints.quantized.modules import Matching, by_checkpoint, by_name, by_wildcard
from flopkit.models.storage import DENSE, Storage, grouped, stored
from flopkit.sizes import short

__all__ = ["METHODS", "NotRead", "Plan"]


class NotRead(ValueError):
    """What a configuration says that is not described here."""


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What a method packs.

    *groups*: the modules of each format, all dense layers where there is no list.
    *ignore*: modules that stay as they are. *head*, *router*: whether these count among
    the dense layers. *experts_alone*: whether nothing else does. *experts*: their format,
    where it is another one. *tables*: whether embeddings are packed as the head is.
    """

    groups: tuple[tuple[tuple[str, ...] | None, Any], ...]
    ignore: tuple[str, ...] = ()
    matches: Matching = by_checkpoint
    head: bool = False
    router: bool = False
    experts_alone: bool = False
    tables: bool = False
    experts: Any = None
    compute: str | None = None
    kv_cache: str | None = None
    notes: tuple[str, ...] = ()


class Said:
    """The fields of a ``quantization_config``, null being what is not said."""

    def __init__(self, fields: Mapping[str, Any], base: str) -> None:
        self.fields, self.base = fields, base

    def get(self, *keys: str, default: Any = None) -> Any:
        return next((self.fields[key] for key in keys if self.fields.get(key) is not None), default)

    def number(self, *keys: str, default: int | None = None, least: int = 1) -> int:
        value = self.get(*keys, default=default)
        if type(value) is not int or value < least:
            raise NotRead(f"{keys[0]}={short(value)}")
        return value

    def listed(self, *keys: str) -> tuple[str, ...]:
        value = self.get(*keys, default=[])
        if not isinstance(value, (list, tuple)) or not all(isinstance(each, str) for each in value):
            raise NotRead(f"{keys[0]}={short(value)}")
        return tuple(value)

    def inside(self, key: str) -> Mapping[str, Any]:
        value = self.get(key, default={})
        if not isinstance(value, Mapping):
            raise NotRead(f"{key}={short(value)}")
        return value


def _fp8(said: Said) -> Plan:
    """Blocks with an fp32 scale, as DeepSeek-V3 published them."""
    size: Any = said.fields.get("weight_block_size", ())
    notes: tuple[str, ...] = ()
    if size == () and said.get("activation_scheme") == "static":
        size = None  # AutoFP8's, with one scale for a tensor; blocks are scaled as they come
    if size == ():
        size, notes = (128, 128), ("weight_block_size is missing: [128, 128], as transformers takes it",)
    if size is None:
        packed: Any = "fp8"
    elif isinstance(size, (list, tuple)) and len(size) == 2 and all(type(each) is int and each > 0 for each in size):
        rows, block = size
        packed = stored("fp8_block")
        if (rows, block) != (128, 128):
            packed = replace(packed, name=f"fp8_block {rows} × {block}", rows=rows, block=block)
    else:
        raise NotRead(f"weight_block_size={short(size)}")
    if said.listed("modules_to_convert"):
        raise NotRead("modules_to_convert")
    experts = said.get("expert_dtype", default="fp8")
    if experts not in ("fp8", "fp4"):
        raise NotRead(f"expert_dtype={short(experts)}")
    ignore = said.listed("modules_to_not_convert", "ignored_layers")
    fp4 = replace(stored("mxfp4"), computes="fp8") if experts == "fp4" else None
    again = _by_layer(said) if said.get("quant_algo") is not None else ()  # ModelOpt packed some of them once more
    return Plan(
        groups=(*again, (None, packed)), ignore=ignore, compute=None if again else "fp8", experts=fp4, notes=notes
    )


def _fbgemm(said: Said) -> Plan:
    """fp8 with an fp32 scale for each output."""
    packed = Storage("fp8, a scale a row", 8, extra=32, computes="fp8", packs=DENSE)
    return Plan(groups=((None, packed),), ignore=said.listed("modules_to_not_convert"), compute="fp8")


def _mxfp4(said: Said) -> Plan:
    """Experts alone: transformers packs those of gpt-oss, whatever the list says of the rest."""
    ignore = said.listed("modules_to_not_convert")
    return Plan(groups=((None, stored("mxfp4")),), ignore=ignore, experts_alone=True, compute=said.base)


def _awq(said: Said) -> Plan:
    if said.get("version", default="gemm") not in ("gemm", "GEMM", "gemv", "GEMV", "marlin", "exllama"):
        raise NotRead(f"version={short(said.get('version'))}")
    packed = grouped(
        "awq",
        said.number("bits", "w_bit", default=4),
        _group(said.number("group_size", "q_group_size", default=128, least=-1)),
    )
    return Plan(groups=((None, packed),), ignore=said.listed("modules_to_not_convert"), compute=said.base)


def _gptq(said: Said) -> Plan:
    if said.get("dynamic"):
        raise NotRead("dynamic")
    if said.get("is_marlin_format") or said.get("checkpoint_format") == "marlin":
        raise NotRead("the marlin format")
    packed = grouped("gptq", said.number("bits"), _group(said.number("group_size", default=128, least=-1)))
    ignore = said.listed("modules_to_not_convert")
    return Plan(groups=((_alone(said), packed),), ignore=ignore, head=said.get("lm_head") is True, compute=said.base)


def _alone(said: Said) -> tuple[str, ...] | None:
    """The modules of a layer that GPTQ packed where it was told to leave the others, in lists of those that it packs together."""
    lists = said.get("modules_in_block_to_quantize", "inside_layer_modules", default=[])
    inner = (
        [each for one in lists for each in (one if isinstance(one, (list, tuple)) else [one])]
        if isinstance(lists, (list, tuple))
        else [lists]
    )
    if not all(isinstance(each, str) for each in inner):
        raise NotRead(f"modules_in_block_to_quantize={short(lists)}")
    return tuple(inner) or None


def _auto_round(said: Said) -> Plan:
    """AutoRound's own format: qweight, qzeros and fp16 scales as GPTQ packs them, without its order of groups."""
    packing = said.get("packing_format", default="auto_round:auto_gptq")
    if packing not in ("auto_round:auto_gptq", "auto_round:auto_awq", "auto_round:gptq", "auto_round:awq"):
        raise NotRead(f"packing_format={short(packing)}")
    if said.get("data_type", default="int") != "int" or said.number("act_bits", default=16) < 16:
        raise NotRead(f"data_type={short(said.get('data_type'))}, act_bits={short(said.get('act_bits'))}")
    ignore = []
    for name, own in said.inside("extra_config").items():
        if not isinstance(own, Mapping) or own.get("bits") not in (16, 32):
            raise NotRead(f"extra_config: {name}={short(own)}")
        ignore.append(name)
    packed = grouped("awq", said.number("bits"), _group(said.number("group_size", default=128, least=-1)))
    packed = replace(packed, name=packed.name.replace("awq", "auto-round"), source="AutoRound: qweight, qzeros, scales")
    return Plan(groups=((None, packed),), ignore=tuple(ignore), router=True, compute=said.base)


def _group(size: int) -> int | None:
    if size == 0:
        raise NotRead("group_size=0")
    return None if size < 0 else size


def _bitsandbytes(said: Said) -> Plan:
    ignore = said.listed("llm_int8_skip_modules")
    if said.get("load_in_8bit", "_load_in_8bit"):
        packed = Storage("int8, a scale a row", 8, extra=32, computes="int8", packs=DENSE)
        return Plan(groups=((None, packed),), ignore=ignore, compute="int8")
    if not said.get("load_in_4bit", "_load_in_4bit"):
        raise NotRead("neither load_in_4bit nor load_in_8bit")
    kind = said.get("bnb_4bit_quant_type", default="fp4")
    if kind not in ("nf4", "fp4"):
        raise NotRead(f"bnb_4bit_quant_type={short(kind)}")
    twice = "" if said.get("bnb_4bit_use_double_quant") else "_plain"
    packed = stored(f"{'nf4' if kind == 'nf4' else 'bnb_fp4'}{twice}")
    compute = _plain(said.get("bnb_4bit_compute_dtype", default="float32"), "bnb_4bit_compute_dtype")
    return Plan(groups=((None, packed),), ignore=ignore, compute=compute)


def _plain(dtype: Any, key: str) -> str:
    try:
        return dtypes.canonical(dtype)
    except ValueError:
        raise NotRead(f"{key}={short(dtype)}") from None


def _compressed(said: Said) -> Plan:
    """compressed-tensors: groups of modules, each with what its weights and activations are."""
    if (
        said.get("format", default="") == "dense"
        or said.get("quantization_status", default="compressed") != "compressed"
    ):
        raise NotRead(
            f"format={short(said.get('format'))}, quantization_status={short(said.get('quantization_status'))}: weights that are not compressed"
        )
    if (sparsity := said.inside("sparsity_config")).get("format") not in (None, "dense"):
        raise NotRead(f"sparsity_config with the format {short(sparsity['format'])}")
    groups = said.inside("config_groups")
    if not groups:
        raise NotRead("no config_groups")
    found = tuple(_group_of(name, group, said.base) for name, group in groups.items())
    kv_cache = _kv_cache(said.get("kv_cache_scheme"))
    ignore = said.listed("ignore")
    return Plan(groups=found, ignore=ignore, matches=by_name, head=True, router=True, kv_cache=kv_cache)


def _group_of(name: str, group: Any, base: str) -> tuple[tuple[str, ...], Any]:
    if not isinstance(group, Mapping):
        raise NotRead(f"config_groups: {name}={short(group)}")
    said = Said(group, base)
    targets = said.listed("targets")
    weights = said.get("weights")
    if weights is None:
        return targets, base
    if not isinstance(weights, Mapping):
        raise NotRead(f"{name}: weights={short(weights)}")
    activations = said.get("input_activations")
    compute = base if activations is None else _number(activations, f"{name}: input_activations")
    return targets, _packed(Said(weights, base), name, compute)


def _packed(weights: Said, name: str, compute: str) -> Any:
    """The format of a group's weights. Scales of ints and fp8 have the type of the model;
    those of fp4 are fp8, or powers of two."""
    plain = _number(weights.fields, f"{name}: weights")
    width = weights.number("num_bits")
    strategy = weights.get("strategy") or ("tensor" if weights.get("group_size") is None else "group")
    zero = 0 if weights.get("symmetric", default=True) else width
    each = 32 if weights.get("actorder") in ("group", True) else 0
    common: dict[str, Any] = {"computes": compute, "packs": DENSE, "each_input": each}
    if strategy == "tensor":
        return Storage(plain, width, extra=0, computes=compute, packs=DENSE)
    if strategy == "channel":
        return Storage(f"{plain}, a scale a row", width, extra=16 + zero, **common)
    if strategy == "block":
        size = weights.get("block_structure")
        if (
            not isinstance(size, (list, tuple))
            or len(size) != 2
            or not all(type(one) is int and one > 0 for one in size)
        ):
            raise NotRead(f"{name}: block_structure={short(size)}")
        return Storage(f"{plain}, blocks of {size[0]} × {size[1]}", width, size[1], rows=size[0], extra=16, **common)
    if strategy not in ("group", "tensor_group"):
        raise NotRead(f"{name}: strategy={short(strategy)}")
    group = weights.number("group_size")
    if plain == "fp4" and (strategy, group) in (("tensor_group", 16), ("group", 32)):
        return replace(stored("nvfp4" if group == 16 else "mxfp4"), **common)
    return Storage(f"{plain}, groups of {group}", width, group, extra=16 + zero, **common)


def _number(said: Any, what: str) -> str:
    """The number format of weights or activations: ``{"num_bits": 8, "type": "float"}``."""
    if not isinstance(said, Mapping):
        raise NotRead(f"{what}={short(said)}")
    width, kind = said.get("num_bits"), said.get("type", "int")
    if kind not in ("int", "float") or type(width) is not int or not 1 < width <= 16:
        raise NotRead(f"{what}: {short(width)} bits of type {short(kind)}")
    return f"{'fp' if kind == 'float' else 'int'}{width}"


def _kv_cache(scheme: Any) -> str | None:
    if scheme is None:
        return None
    return _plain(_number(scheme, "kv_cache_scheme"), "kv_cache_scheme")


_NVFP4 = "nvfp4"
_ALGORITHMS: Mapping[str, tuple[Any, str | None]] = {
    "NVFP4": (_NVFP4, "fp4"),
    "W4A16_NVFP4": (_NVFP4, None),
    "FP8": ("fp8", "fp8"),
}
"""Of ModelOpt's ``quant_algo``: the format of the weights, and that of the products (None: the activations')."""


def _modelopt(said: Said) -> Plan:
    """NVIDIA's ModelOpt: one algorithm, or one for each module."""
    inner = Said(said.inside("quantization") or said.fields, said.base)
    algorithm = inner.get("quant_algo")
    scheme, kv_cache = inner.get("kv_cache_scheme"), None
    if (named := inner.get("kv_cache_quant_algo")) is not None or isinstance(named := scheme, str):
        kv_cache = {"FP8": "fp8", "NVFP4": _NVFP4, "INT8": "int8"}.get(str(named))
        if kv_cache is None:
            raise NotRead(f"kv_cache_quant_algo={short(named)}")
    else:
        kv_cache = _kv_cache(scheme)
    if algorithm == "MIXED_PRECISION":
        return Plan(groups=_by_layer(inner), matches=by_wildcard, head=True, router=True, kv_cache=kv_cache)
    keys = ("ignore", "exclude_modules")
    said_so = any(inner.fields.get(key) is not None for key in keys)
    notes = () if said_so else (
        f"quantization_config names no modules that stay as they are: all dense layers but routers and head are counted as {algorithm}",
    )  # fmt: skip
    return Plan(
        groups=((None, _algorithm(algorithm, said.base)),),
        ignore=inner.listed(*keys),
        matches=by_wildcard,
        head=said_so,
        router=said_so,
        kv_cache=kv_cache,
        notes=notes,
    )


def _by_layer(said: Said) -> tuple[tuple[tuple[str, ...], Any], ...]:
    """The modules of each of ModelOpt's algorithms, where it has one for each module."""
    layers = said.inside("quantized_layers")
    if said.get("quant_algo") != "MIXED_PRECISION" or not layers:
        raise NotRead(f"quant_algo {said.get('quant_algo')} without quantized_layers")
    by_algorithm: dict[Any, list[str]] = {}
    for name, each in layers.items():
        by_algorithm.setdefault(each.get("quant_algo") if isinstance(each, Mapping) else each, []).append(name)
    return tuple((tuple(names), _algorithm(each, said.base)) for each, names in by_algorithm.items())


def _algorithm(name: Any, base: str) -> Any:
    if not isinstance(name, str) or name not in _ALGORITHMS:
        raise NotRead(f"quant_algo={short(name)}")
    kind, compute = _ALGORITHMS[name]
    if kind == _NVFP4:
        return replace(stored(_NVFP4), computes=compute or base)
    return kind


def _mlx(said: Said) -> Plan:
    """MLX: groups along d_in, with a scale and a bias in the type of the model; every Linear and Embedding, but what has an entry of its own."""

    def packed(own: Said) -> Any:
        mode, bits, group = own.get("mode", default="affine"), own.number("bits"), own.number("group_size")
        if mode in ("mxfp4", "nvfp4"):
            return replace(stored(mode), computes=said.base)
        if mode != "affine":
            raise NotRead(f"mode={short(mode)}")
        return Storage(
            f"mlx, {bits} bits, groups of {group}",
            bits,
            group,
            extra=32,
            computes=said.base,
            source="MLX: weight, scales, biases",
        )

    own = {
        name: each for name, each in said.fields.items() if isinstance(each, Mapping) or ("." in name and each is False)
    }
    if odd := [name for name in own if name.endswith(("embed_tokens", "lm_head"))]:
        raise NotRead(f"{odd[0]} in a format of its own")
    groups = tuple(((name,), packed(Said({**said.fields, **each}, said.base))) for name, each in own.items() if each)
    ignore = tuple(name for name, each in own.items() if not each)
    return Plan(
        groups=(*groups, (None, packed(said))), ignore=ignore, matches=by_checkpoint, head=True, router=True, tables=True, compute=said.base
    )  # fmt: skip


METHODS: Mapping[str, Callable[[Said], Plan]] = {
    "fp8": _fp8, "fbgemm_fp8": _fbgemm, "mxfp4": _mxfp4, "awq": _awq, "gptq": _gptq, "bitsandbytes": _bitsandbytes,
    "compressed-tensors": _compressed, "modelopt": _modelopt, "auto-round": _auto_round, "mlx": _mlx,
}  # fmt: skip
"""What reads the ``quantization_config`` of each ``quant_method``."""
