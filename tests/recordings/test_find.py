"""Finding measurements: by workload, kind, device and the rest; what is unknown is told its neighbours."""

import pytest

import flopkit as fk
from flopkit.recordings import published_data, search


def values(*args, **kwargs):
    return [row["value"] for row in fk.recordings.find(*args, **kwargs)]


def test_names_are_read_as_people_write_them():
    wanted = values("llama-3.1-8b", kind="training")
    assert wanted and values("Llama 3.1 8B", kind="Training") == wanted
    assert not set(wanted) & set(values("llama-3-8b", kind="prefill"))


def test_filters_join():
    rows = fk.recordings.find("resnet50-v1.5", kind="training", device="v100", precision="fp16", count=8).rows
    assert {row["value"] for row in rows} == {8322, 8056, 9510}
    for row in rows:
        assert (row["workload"], row["kind"], row["device_name"], row["precision"], row["count"]) == (
            "resnet50-v1.5", "training", "v100-sxm", "fp16", 8,
        )  # fmt: skip
    assert values(dataset="gpt fast", workload="mixtral-8x7b", precision="bf16") == [96.67, 155.35, 227.82]


@pytest.mark.parametrize(
    ("device", "found"),
    [
        ("h100", {"h100-sxm", "h100-pcie"}),
        ("H100 SXM", {"h100-sxm"}),
        ("h100-pcie", {"h100-pcie"}),
        ("NVIDIA A100-SXM4-40GB", {"a100-sxm-40gb"}),
        ("RTX 3090", {"rtx-3090"}),
        (fk.device("h200"), {"h200"}),
        ("GTX 1080 Ti", {"gtx-1080-ti"}),
        ("M1 Max", {"apple-m1-max"}),
        ("M2 Ultra", {"apple-m2-ultra"}),
        ("M1 7-Core", {None}),
    ],
)
def test_devices_by_name_by_words_and_as_such(device, found):
    rows = fk.recordings.find(device=device).rows
    assert {row["device_name"] for row in rows} == found


def test_a_device_without_a_peak_stays_without_a_share():
    rows = fk.recordings.find("llama-3-8b", kind="decode", device="M1 7-Core").rows
    assert rows and all(row["share"] is None and row["verdict"] == "not judged" for row in rows)
    assert all(row["bytes_per_s"] for row in rows), "what it reads a second is known all the same"


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        (dict(workload="lama-3-8b"), "workload='lama-3-8b' is not a workload .* did you mean llama-3-8b"),
        (dict(workload="resnet"), "did you mean resnet18, resnet34, resnet50, resnet101, .* or \\d+ more"),
        (dict(kind="train"), "did you mean training"),
        (dict(device="h1000"), "device='h1000' is in no published measurement; did you mean H100"),
        (dict(dataset="tim"), "did you mean timm"),
        (dict(precision="bf17"), "did you mean bf16"),
        (dict(verdict="above the peaks"), "did you mean above the peak"),
        (
            dict(workload="vgg16", kind="decode"),
            "kind='decode': nothing was measured with workload='vgg16'; there is inference, backward, training",
        ),
        (
            dict(workload="vgg16", device="tpu-v4"),
            "device='tpu-v4': nothing was measured with workload='vgg16'; there is ",
        ),
        (dict(dataset="gpt_fast", count=3), "count=3: nothing was measured; there is 2, 4, 8, 1"),
    ],
)
def test_what_is_not_there_is_an_error_with_what_is(asked, message):
    with pytest.raises(ValueError, match=message):
        fk.recordings.find(**asked)


@pytest.mark.parametrize("asked", [dict(workload=8), dict(device=4090), dict(device=" "), dict(kind=["training"])])
def test_what_is_no_name_is_an_error(asked):
    with pytest.raises(TypeError, match=next(iter(asked))):
        fk.recordings.find(**asked)


def test_a_table_names_its_sources():
    table = fk.recordings.find("llama-3.1-8b", kind="training", device="h100", precision="bf16", count=8)
    for text in (str(table), table._repr_html_()):
        assert "torchtitan, training of Llama 3.1 (2024-12 to 2025-06)" in text
        assert "6,667" in text and "possible" in text
    assert "34.7 %" in str(table) and table.rows[1]["url"].endswith("benchmarks/llama3_h100_202412_torchtitan.md#L25")
    frame = table.to_frame()
    assert {"url", "licence", "why", "memory_GiB"} <= set(frame.columns)


def test_rows_can_be_changed_without_changing_the_data():
    first = fk.recordings.find(dataset="gpt_fast").rows[0]
    first["value"] = -1
    assert fk.recordings.find(dataset="gpt_fast").rows[0]["value"] > 0
    with pytest.raises(TypeError):
        fk.recordings.dataset("gpt_fast").rows[0]["value"] = -1


def test_only_what_is_asked_for_is_loaded(monkeypatch):
    asked = []
    monkeypatch.setattr(search, "_collection", lambda name: asked.append(name) or published_data.dataset(name))
    fk.recordings.find(dataset="litgpt", kind="decode")
    assert asked == ["litgpt"]
    assert published_data.dataset("litgpt").rows is published_data.dataset("LitGPT").rows, "read once"


def test_the_collections_show_themselves():
    table = fk.recordings.datasets()
    assert len(table) == len(published_data.dataset_names())
    assert sum(row["rows"] for row in table) == len(fk.recordings.find())
    one = fk.recordings.dataset("llama_cpp")
    assert "none stated" in repr(one) and "796 rows" in repr(one)
    page = one._repr_html_()
    assert 'href="https://github.com/XiongjieDai' in page and "Rented machines." in page and "left out" in page
    assert "Rented" not in str(one.table()) and len(one.table()) == 796
