"""Tiles and waves: the counts are those of the product, and the share that is used is what can be reckoned by hand."""

import pytest

from flopkit.experiments import Bench, matmul_tiles


def test_counts_are_of_the_product_not_of_its_tiles(toy):
    records = toy("matmul_tiles")[1]
    assert [each["params"]["rows"] for each in records] == [15, 16, 17]
    for each in records:
        rows = each["params"]["rows"]
        assert each["counted"]["flops"] == 2 * rows * 32 * 48
        assert each["counted"]["bytes"] == 4 * (rows * 32 + 32 * 48 + rows * 48)
        assert each["extra"] == {}  # a CPU has no waves


@pytest.mark.parametrize(
    ("rows", "tiles", "needed", "share"),
    [
        (4096, 32 * 32, 8, 1024 / 1056),  # 0.97
        (4097, 33 * 32, 8, 4097 / 4224),  # a tile of one row
        (4224, 33 * 32, 8, 1.0),
        (4288, 34 * 32, 9, 33.5 * 32 / (9 * 132)),  # 0.90: half of the last row of tiles, and a ninth wave
        (8576, 67 * 32, 17, 67 * 32 / (17 * 132)),  # 0.955
    ],
)
def test_waves_of_an_h200(rows, tiles, needed, share):
    found = matmul_tiles.waves(rows, 8192, multiprocessors=132)
    assert (found["tiles"], found["waves"]) == (tiles, needed)
    assert found["share_used"] == pytest.approx(share)


def test_a_gpu_is_asked_for_its_multiprocessors(monkeypatch):
    import torch

    card = type("Card", (), {"multi_processor_count": 40})
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: card)
    bench = Bench("cpu", "toy")
    bench.device = torch.device("cuda")
    assert matmul_tiles._expected(bench, 256, 5120) == {"tiles": 40, "waves": 1, "share_used": 1.0}
