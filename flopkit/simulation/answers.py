"""One process as a rank of many: what torch.distributed needs numbers or answers for, and where it does without. (Little of it is public.)"""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import inspect
import sys
import traceback
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.distributed as dist
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode, unset_fake_temporarily
from torch.distributed.device_mesh import DeviceMesh
from torch.nn.parallel import DistributedDataParallel
from torch.utils._python_dispatch import TorchDispatchMode


class _Changes(contextlib.ExitStack):
    """What is put back at the end, the last first."""

    def replace(self, owner: Any, name: str, make: Callable[[Any], Any]) -> None:
        """Set an attribute to what *make* makes of it."""
        self.callback(setattr, owner, name, vars(owner)[name])
        setattr(owner, name, make(getattr(owner, name)))


@contextlib.contextmanager
def simulated(world: int, rank: int) -> Iterator[None]:
    """Inside, this process is a rank of a process group that sends nothing, and tensors are fake ones."""
    from torch._C._distributed_c10d import FakeProcessGroup
    from torch.testing._internal.distributed.fake_pg import FakeStore

    with contextlib.ExitStack() as stack:
        stack.callback(setattr, sys, "excepthook", sys.excepthook)  # torch puts the rank before each line of an error
        stack.callback(_end_group)
        made = _note_options(stack, vars(FakeProcessGroup).get("Options"))
        dist.init_process_group("fake", store=FakeStore(), rank=rank, world_size=world)
        _adapt(stack.enter_context(_Changes()))
        _know_coalesced(stack.enter_context(torch.library._scoped_library("c10d", "IMPL")))
        fake = stack.enter_context(FakeTensorMode(allow_non_fake_inputs=True))
        try:
            yield
        finally:
            # Outside, a model or a group of the block would answer with whatever is in memory.
            fake.allow_non_fake_inputs = False
            for options in made:
                options.error_on_collective = True


def _note_options(stack: contextlib.ExitStack, kind: Any) -> list[Any]:
    """The options of every group that the block makes, meshes and subgroups too: they say at its end that nobody answers any more."""
    made: list[Any] = []
    if kind is None or not hasattr(kind(), "error_on_collective"):  # not in each torch
        return made
    plugins = dist.Backend._plugins
    plugin = plugins["FAKE"]

    def create(common: Any, options: Any) -> Any:
        made.append(kind() if options is None else options)
        return plugin.creator_fn(common, made[-1])

    stack.callback(plugins.__setitem__, "FAKE", plugin)
    plugins["FAKE"] = plugin._replace(creator_fn=create)
    return made


def _end_group() -> None:
    if dist.is_initialized():  # the program may have ended it
        dist.destroy_process_group()


_COALESCED = (
    "allreduce_coalesced_",
    "allgather_coalesced_",
    "allgather_into_tensor_coalesced_",
    "reduce_scatter_tensor_coalesced_",
)


def _know_coalesced(library: torch.library.Library) -> None:
    """Collectives of several tensors at once, which torch takes on a CPU and gives no fake kernel."""
    from torch._C._distributed_c10d import FakeWork

    for name in _COALESCED:
        if not torch._C._dispatch_has_kernel_for_dispatch_key(f"c10d::{name}", "Meta"):
            library.impl(name, lambda *args: FakeWork().boxed(), "Meta")


def asks_for_objects(error: BaseException) -> str:
    """The collective of Python objects in which *error* was raised; empty where none was."""
    frames = [frame.f_code for frame, _ in traceback.walk_tb(error.__traceback__)]
    names = (code.co_name for code in frames if code.co_filename == dist.distributed_c10d.__file__)
    return next((name for name in names if "_object" in name), "")


def _adapt(changes: _Changes) -> None:
    """Change what would read a number, or an answer that nobody gives, and what takes a step for each rank."""
    for name, member in list(vars(DeviceMesh).items()):  # a mesh of ranks has numbers
        if inspect.isfunction(member):
            changes.replace(DeviceMesh, name, _with_numbers)
    changes.replace(DistributedDataParallel, "__init__", _without_sync)
    changes.replace(DistributedDataParallel, "_pre_forward", _with_hook)
    changes.replace(vars(dist)["Reducer"], "_rebuild_buckets", _with_integers)
    parts = "torch.distributed.tensor.experimental"
    for module, kind, name, make in (
        ("torch.distributed.fsdp._fully_shard._fsdp_param", "", "_chunk_with_empty", lambda original: _Chunks),
        ("torch.distributed.fsdp._fully_shard._fsdp_init", "", "_get_post_forward_mesh_info", _with_numbers),
        ("torch.distributed.fsdp._fully_shard._fully_shard", "", "_get_post_forward_mesh_info", _with_numbers),
        ("torch.distributed.pipelining.schedules", "_PipelineSchedule", "_warmup_p2p", _without_vote),
        (parts, "", "context_parallel", _refused),
        (f"{parts}._context_parallel", "", "context_parallel", _refused),
        (f"{parts}._context_parallel._attention", "", "context_parallel", _refused),
    ):
        if importlib.util.find_spec(module.rpartition(".")[0]) and importlib.util.find_spec(
            module
        ):  # not in each torch
            owner: Any = importlib.import_module(module)
            owner = getattr(owner, kind) if kind else owner
            if name in vars(owner):
                changes.replace(owner, name, make)


def _with_numbers(original: Any) -> Any:
    @functools.wraps(original)
    def method(*args: Any, **kwargs: Any) -> Any:
        with unset_fake_temporarily():
            if isinstance(
                made := kwargs.get("_rank_map"), FakeTensor
            ):  # of `init_device_mesh`: the ranks in their order
                kwargs["_rank_map"] = torch.arange(made.numel(), dtype=torch.int)
            return original(*args, **kwargs)

    return method


class _Chunks:
    """The chunks of a parameter, each made when it is asked for: FSDP2 would make one for every rank, and takes one."""

    def __init__(self, tensor: Any, num_chunks: int, dim: int) -> None:
        self.tensor, self.dim, self.length = tensor, dim, tensor.size(dim)
        self.each = -(-self.length // num_chunks)  # as torch.chunk has it

    def __getitem__(self, place: int) -> Any:
        start = place * self.each
        if start >= self.length > 0:
            return self.tensor.new_empty(0)
        return self.tensor.narrow(self.dim, start, min(self.each, self.length - start))


def _without_vote(original: Any) -> Any:
    """The stages of a pipeline vote on whether the shapes that they were given will do. Here they have to."""
    mode = importlib.import_module("torch.distributed.pipelining.stage").InferenceMode

    def _warmup_p2p(schedule: Any, mine: Any, has_backward: bool, p2p_done: bool) -> None:
        for stage in mine:
            if mode.needs_dynamic(stage._user_meta, has_backward):
                raise NotImplementedError(
                    "a simulated rank hears of no shapes from its neighbours: give PipelineStage its input_args and output_args, with "
                    "requires_grad where a gradient comes back"
                )
            stage._inference_mode = mode.STATIC

    return _warmup_p2p


def _without_sync(original: Any) -> Any:
    """The ranks' parameters are compared and made equal by values."""
    signature = inspect.signature(original)

    @functools.wraps(original)
    def __init__(model: Any, *args: Any, **kwargs: Any) -> None:
        if signature.bind(model, *args, **kwargs).arguments.get("find_unused_parameters"):
            raise NotImplementedError(
                "find_unused_parameters=True: DDP asks the other ranks which parameters a step used, by values, which simulated ranks do "
                "not have. Leave it out where each parameter has a gradient"
            )
        original(model, *args, **{**kwargs, "init_sync": False})

    return __init__


def _with_hook(original: Any) -> Any:
    """DDP's own all-reduce waits for a result. A hook that calls the same has one; torch takes one hook."""

    def _pre_forward(model: Any, *inputs: Any, **kwargs: Any) -> Any:
        if not model._comm_hooks:
            model.register_comm_hook(model.process_group, lambda group, bucket: _mean(group, bucket))
        return original(model, *inputs, **kwargs)

    return _pre_forward


def _mean(group: Any, bucket: Any) -> Any:
    found = bucket.buffer().div_(group.size())
    dist.all_reduce(found, group=group)
    result: Any = torch.futures.Future()
    result.set_result(found)
    return result


def _with_integers(original: Any) -> Any:
    """Which parameter goes into which bucket is written into tensors of integers, and read again."""

    class Integers(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            kwargs = kwargs or {}
            if func.namespace == "aten" and torch.int32 in (
                kwargs.get("dtype"),
                *(getattr(each, "dtype", None) for each in args),
            ):
                with unset_fake_temporarily():
                    return func(*args, **kwargs)
            return func(*args, **kwargs)

    def _rebuild_buckets(reducer: Any) -> Any:
        with Integers():
            return original(reducer)

    return _rebuild_buckets


def _refused(original: Any) -> Any:
    def context_parallel(*args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError(
            "context_parallel() needs attention kernels of a GPU, which simulated ranks do not have. Ring attention as operators, "
            "torch.distributed.tensor.experimental._context_parallel._attention._templated_ring_attention, can be counted"
        )

    return context_parallel
