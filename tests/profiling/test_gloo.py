"""Two real processes under gloo: their profiles say how long a step communicated, and how much of that nothing hid."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import flopkit as fk
from flopkit.profiling import Profile, in_order

dist = torch.distributed
RANKS = 2
pytestmark = [
    pytest.mark.skipif(not dist.is_available() or sys.platform == "win32", reason="needs torch.distributed with gloo"),
    pytest.mark.skipif(not hasattr(torch.cpu.Stream, "record_event"), reason="torch 2.6 has no fully_shard on a CPU"),
]


def strategies():
    data, sharded = (torch.nn.Sequential(*(torch.nn.Linear(128, 128) for _ in range(3))) for _ in range(2))
    from torch.distributed.fsdp import fully_shard

    mesh = dist.init_device_mesh("cpu", (RANKS,))
    for layer in sharded:
        fully_shard(layer, mesh=mesh)
    return {"data": torch.nn.parallel.DistributedDataParallel(data), "sharded": fully_shard(sharded, mesh=mesh)}


def union(spans):
    """Microseconds in which any of them runs."""
    whole, until = 0.0, float("-inf")
    for start, end in sorted(spans):
        whole += max(0.0, end - max(start, until))
        until = max(until, end)
    return whole


def rank_of_two(rank, folder):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=RANKS)
    found, x = {}, torch.ones(32, 128)
    for name, model in strategies().items():

        def step(model=model):
            model(x).sum().backward()

        for _ in range(2):
            step()
        try:
            fk.profile(step, time_budget=0.1)
        except ValueError as error:
            refused = str(error)
        report = in_order(step)
        with torch.profiler.profile() as prof:
            for number in range(2):
                with torch.profiler.record_function(f"ProfilerStep#{number}"):
                    step()
        path = Path(folder, f"{name}{rank}.json")
        prof.export_chrome_trace(str(path))
        profile = Profile.from_trace(path, report)
        events = [each for each in json.loads(path.read_text())["traceEvents"] if each.get("ph") == "X"]
        steps, spans = (
            [(each["ts"], each["ts"] + each["dur"]) for each in events if each["name"].startswith(name)]
            for name in ("ProfilerStep#", "gloo:")
        )
        inside = [
            (max(start, begin), min(end, over))
            for start, end in spans
            for begin, over in steps
            if start < over and end > begin
        ]
        found[name] = {
            "refused": refused, "rows": profile.communication().rows, "strange": [row["name"] for row in profile.not_joined()], "ran": len(spans),
            "gloo": union(inside) * 1e-6 / 2, "seconds": profile.seconds, "parts": sum(row["seconds"] for row in profile.rows),
        }  # fmt: skip
    dist.barrier()
    dist.destroy_process_group()
    Path(folder, f"{rank}.json").write_text(json.dumps(found))


@pytest.fixture(scope="module")
def both(tmp_path_factory):
    folder = tmp_path_factory.mktemp("ranks")
    paths = [str(Path(fk.__file__).parents[1]), str(Path(__file__).parent)]
    code = "import sys, warnings; warnings.simplefilter('ignore'); import test_gloo; test_gloo.rank_of_two(int(sys.argv[1]), sys.argv[2])"
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "GLOO_SOCKET_IFNAME": "lo"}
    ranks = [
        subprocess.Popen(
            [sys.executable, "-c", code, str(rank), str(folder)], env=env, stderr=subprocess.PIPE, text=True
        )
        for rank in range(RANKS)
    ]
    for each in ranks:
        _, errors = each.communicate(timeout=200)
        assert each.returncode == 0, errors
    return [json.loads((folder / f"{rank}.json").read_text()) for rank in range(RANKS)]


@pytest.mark.parametrize("name", ["data", "sharded"])
def test_a_step_of_two_processes_shows_its_communication(both, name):
    for found in (rank[name] for rank in both):
        operators = {row["operator"] for row in found["rows"]}
        assert operators == {
            "data": {"c10d.allreduce_"}, "sharded": {"c10d._allgather_base_", "c10d._reduce_scatter_base_"}
        }[name]  # fmt: skip
        assert not [each for each in found["strange"] if each.startswith(("gloo", "c10d", "fsdp", "aten::mm"))]
        assert found["ran"] == 2 * (
            1 if name == "data" else 3 * 3
        )  # a layer is gathered twice, and its gradient is scattered
        assert found["parts"] == pytest.approx(found["seconds"])
        rows = found["rows"]
        assert all(row["exposed"] + row["hidden"] == pytest.approx(row["seconds"]) for row in rows)
        assert found["gloo"] * 0.999 <= sum(row["seconds"] for row in rows) <= found["seconds"] * 1.001


def test_a_step_that_communicates_is_refused_before_any_clock_runs(both):
    """By its own clock each rank would choose how often to run it, and one would wait for ever."""
    for rank in both:
        assert all("it communicates with other ranks" in found["refused"] for found in rank.values())
