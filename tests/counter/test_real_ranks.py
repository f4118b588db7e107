"""Two real processes: what simulated ranks say is what they count, gloo writes as many bytes, and their reports add up."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import wire

import flopkit as fk

dist = torch.distributed
RANKS = 2
pytestmark = [
    pytest.mark.skipif(not dist.is_available() or sys.platform == "win32", reason="needs torch.distributed with gloo"),
    pytest.mark.skipif(not hasattr(torch.cpu.Stream, "record_event"), reason="torch 2.6 has no fully_shard on a CPU"),
]
SIZES = {"d": 128, "size": 16, "hidden": 256}


def strategies():
    mesh = dist.init_device_mesh("cpu", (RANKS,))
    return {
        "data": torch.nn.parallel.DistributedDataParallel(wire.Llama(**SIZES)),
        "sharded": wire.fully_sharded(wire.Llama(**SIZES), mesh),
        "tensor": wire.tensor_parallel(wire.Llama(**SIZES), mesh),
    }


def rows(report):
    return [[*row.values()] for row in report.communication]


def written():
    """Bytes that this process has written, to sockets too."""
    try:
        lines = Path("/proc/self/io").read_text().splitlines()
    except OSError:
        return None
    return int(dict(line.split(": ") for line in lines)["wchar"])


def rank_of_two(rank, folder):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=RANKS)
    found, x = {}, torch.zeros(2, 64, dtype=torch.long)
    for name, model in strategies().items():
        for _ in range(2):  # buckets are put together anew, connections are made
            wire.step(model, x)
        dist.barrier()
        before = written()
        wire.step(model, x)
        after = written()
        dist.barrier()
        report = fk.count(wire.step, model, x)
        whole = fk.gather(report)
        found[name] = {
            "rows": rows(report), "wrote": None if after is None else after - before, "flops": report.flops, "all": whole.flops,
            "notes": whole.notes, "sent": sum(row["sent"] for row in whole.communication), "convention": str(fk.gather(report.under("EXACT")).convention),
        }  # fmt: skip
    dist.barrier()
    dist.destroy_process_group()
    Path(folder, f"{rank}.json").write_text(json.dumps(found))


@pytest.fixture(scope="module")
def both(tmp_path_factory):
    folder = tmp_path_factory.mktemp("ranks")
    paths = [str(Path(fk.__file__).parents[1]), str(Path(wire.__file__).parent), str(Path(__file__).parent)]
    code = "import sys, warnings; warnings.simplefilter('ignore'); import test_real_ranks; test_real_ranks.rank_of_two(int(sys.argv[1]), sys.argv[2])"
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


@pytest.mark.filterwarnings("ignore")
def test_they_send_what_simulated_ranks_say(both):
    with fk.simulate_ranks(RANKS):
        x = torch.zeros(2, 64, dtype=torch.long)
        for name, model in strategies().items():
            for _ in range(2 if name == "data" else 0):
                wire.step(model, x)
            report = fk.count(wire.step, model, x)
            assert rows(report) == both[0][name]["rows"] == both[1][name]["rows"]
            assert report.flops == both[0][name]["flops"]


def test_gloo_writes_as_many_bytes(both):
    """gloo's reduce-scatter is its all-reduce: twice what a ring sends."""
    for rank in both:
        for name, of in rank.items():
            if of["wrote"] is None:
                pytest.skip("this system does not say what a process writes")
            expected = sum(sent * (1 + (kind == "reduce-scatter")) for kind, *_, sent in of["rows"])
            assert expected <= of["wrote"] <= 1.02 * expected, name


def test_reports_add_up(both):
    """Data parallel ranks execute what one device would on both batches, tensor parallel ones together no more than one device on one."""
    alone = fk.count(wire.step, wire.Llama(**SIZES), torch.zeros(2, 64, dtype=torch.long)).flops
    for name, one in both[0].items():
        other = both[1][name]
        assert one["all"] == other["all"] == one["flops"] + other["flops"]
        assert one["sent"] == sum(row[-1] for rank in (one, other) for row in rank["rows"])
        assert one["notes"] == ["2 ranks together"] and one["convention"] == "EXACT"
    assert both[0]["data"]["all"] == both[0]["sharded"]["all"] == 2 * alone
    head = 3 * 2 * 2 * 64 * SIZES["d"] * 128  # not divided
    assert both[0]["tensor"]["all"] == alone + head


def test_of_one_process_the_whole_is_its_report():
    report = fk.count(torch.nn.Linear(4, 8), torch.ones(2, 4))
    assert fk.gather(report) is report
    with pytest.raises(TypeError, match="report=7: must be what fk.count"):
        fk.gather(7)
    with fk.simulate_ranks(4):
        report = fk.count(torch.nn.Linear(4, 8), torch.ones(2, 4))
        with pytest.raises(RuntimeError, match="the other 3 ranks are simulated"):
            fk.gather(report)
