"""Whose measurements are found: the reader's own before ours, ours before published ones, and each says so."""

import copy
import pickle

import pytest

from flopkit.experiments import NAMES, record
from flopkit.recordings import OWNERS, Case, Recording, cases, compare, find, recordings, records, shown_records


@pytest.fixture(scope="module")
def measured(tmp_path_factory):
    place = tmp_path_factory.mktemp("kept") / "mine.json"
    return record(place, only=["matmul_sizes"], device="cpu", scale="toy").recording


@pytest.fixture
def places(tmp_path, monkeypatch):
    """Empty folders for the reader's recordings and for ours."""
    own, shipped = tmp_path / "own", tmp_path / "shipped"
    monkeypatch.setenv("FLOPKIT_RECORDINGS", str(own))
    monkeypatch.setattr(cases, "_shipped", lambda: shipped)
    return own, shipped


def made(measured, when="2026-01-01", **changes):
    provenance = {**measured.provenance, "when": f"{when}T00:00:00+00:00", **changes}
    about = {"who": "flopkit", "machine": "a server", "licence": "CC0-1.0"}
    return Recording(about, provenance, None, measured.results)


def test_yours_then_ours_then_theirs(measured, places):
    own, shipped = places
    found = records("matmul_sizes")
    assert {case.owner for case in found} == {"theirs"}
    assert all(case.whose.startswith("published: ") and case.device in case.whose for case in found)
    made(measured).write(shipped / "a.json")
    assert {(case.owner, case.whose) for case in records("matmul_sizes")} == {
        ("ours", "recorded by flopkit on a server, 2026-01-01")
    }
    made(measured, "2026-02-03").write(own / "b.json")
    assert {(case.owner, case.whose) for case in records("matmul_sizes")} == {
        ("yours", f"yours: {measured.device}, 2026-02-03")
    }
    assert [records("matmul_sizes", owner=each)[0].owner for each in OWNERS] == list(OWNERS)
    assert records("matmul_sizes", owner="Yours")[0] == measured.results[0]


def test_the_newest_of_a_case_on_each_device(measured, places):
    own, _ = places
    made(measured, "2026-01-01").write(own / "b.json")
    made(measured, "2026-03-01").write(own / "a.json")
    made(measured, "2025-01-01", device="another CPU").write(own / "c.json")
    found = records("matmul_sizes")
    assert [case.whose[-10:] for case in found] == ["2026-03-01"] * 3 + ["2025-01-01"] * 3
    assert [case.device for case in records("matmul_sizes", device="another")] == ["another CPU"] * 3
    assert [str(one.provenance["when"])[:10] for one in recordings("yours")] == [
        "2026-03-01",
        "2026-01-01",
        "2025-01-01",
    ]


def test_what_is_refused_is_shown_only_where_it_is_asked_for(measured, places):
    own, _ = places
    results = list(copy.deepcopy(measured.results))
    results[1]["verdict"] = "impossible"
    Recording(measured.attribution, measured.provenance, None, tuple(results)).write(own / "a.json")
    assert len(records("matmul_sizes")) == 2 and len(records("matmul_sizes", refused=True)) == 3
    assert all(case["verdict"] == "ok" for case in records("matmul_sizes"))
    theirs = records("convolutions", refused=True)
    assert "above the peak" in {case["verdict"] for case in theirs} - {
        case["verdict"] for case in records("convolutions")
    }


def test_a_device_or_format_that_you_did_not_measure_is_looked_for_further_on(measured, places):
    own, _ = places
    made(measured).write(own / "a.json")
    found = records("matmul_sizes", device="h100 sxm", dtype="bf16")
    assert [case.owner for case in found] == ["theirs"]


def test_a_damaged_file_of_yours_is_an_error_and_no_silence(places):
    own, _ = places
    own.mkdir()
    (own / "mine.json").write_text('{"schema"')
    with pytest.raises(ValueError, match=r"mine\.json is damaged.*move it away"):
        records("matmul_sizes")


def test_a_folder_that_is_none_is_an_error_and_no_silence(places, monkeypatch, tmp_path):
    """Else ours would be shown, as if there were none of the reader's."""
    (tmp_path / "file").write_text("")
    for named in (tmp_path / "file", "/dev/null", "~nobody-of-that-name/kept"):
        monkeypatch.setenv("FLOPKIT_RECORDINGS", str(named))
        with pytest.raises(ValueError, match="FLOPKIT_RECORDINGS='.*let it name"):
            records("matmul_sizes")
    monkeypatch.setattr(cases.Path, "iterdir", lambda path: (_ for _ in ()).throw(PermissionError("no permission")))
    places[0].mkdir()
    monkeypatch.setenv("FLOPKIT_RECORDINGS", str(places[0]))
    with pytest.raises(PermissionError, match="no permission"):
        records("matmul_sizes")


def test_what_else_lies_in_the_folder_is_left_alone(measured, places):
    own, _ = places
    made(measured).write(own / "a.json")
    for name in ("ceilings/cpu.json", ".a.json.part", ".hidden.json", "notes.txt"):
        (own / name).parent.mkdir(exist_ok=True)
        (own / name).write_text("no recording")
    assert len(recordings("yours")) == 1


def test_published_rows_keep_what_is_printed(places):
    case = records("matmul_sizes", device="t4", dtype="fp32")[0]
    row = case["extra"]
    assert case["rates"]["flops_per_s"] == row["flops_per_s"] and case["verdict"] == "ok" and "seconds" not in case
    assert {"m", "n", "k"} <= case["params"].keys() and row["url"].startswith("https://")
    assert set(cases.PUBLISHED) <= set(NAMES) and all(find(**asked).rows for asked in cases.PUBLISHED.values())


def test_nothing_is_nothing(places):
    assert records("no_such_experiment") == [] and recordings("ours") == []
    with pytest.raises(ValueError, match="owner"):
        records("matmul_sizes", owner="mine")


# What a recording that comes with flopkit does not hold, and why.
LACKS = {
    "Intel(R) Xeon(R) Processor": {"cnn_operators", "strategies", "wire"},  # younger than the recording
    "AMD EPYC": set(NAMES) - {"strategies", "wire"},  # recorded for the youngest alone
    "NVIDIA H200": {"all_reduce", "strategies", "wire"},  # one card alone has nobody to reduce with
}


def test_shipped_recordings_are_whole():
    """Of real sizes, by somebody who has a name, under a licence."""
    assert {one.device for one in recordings("ours")} == set(LACKS)
    for one in recordings("ours"):
        held = {each["experiment"] for each in one.results}
        assert one.ceilings is not None and held == set(NAMES) - LACKS[one.device], one.path
        assert one.results and one.provenance["scale"] != "toy"
        assert "not" not in one.attribution["who"] and "not" not in one.attribution["licence"], one.path


def test_as_a_table(measured):
    shown = str(shown_records(measured.results, "matrix products"))
    assert "matrix products" in shown and "n=16, data=normal" in shown and "GFLOP/s" in shown and "MFU" not in shown


def test_a_case_can_be_pickled_and_copied(measured):
    case = Case(measured.results[0], "yours", "yours: a CPU", "a CPU", {"when": "now"})
    for other in (pickle.loads(pickle.dumps(case)), copy.deepcopy(case)):
        assert other == case and vars(other) == vars(case)


# ------------------------------------------------------------------------------------------------------------- comparing


def case(mean, half=0.1, device="a CPU", **changes):
    record = {
        "experiment": "x", "params": {"n": 8}, "dtype": "fp32", "verdict": "ok", "steady": True,
        "counted": {"flops": 1024, "bytes": 768, "convention": "EXACT"}, "rates": {},
        "seconds": {"mean": mean, "low": mean - half, "high": mean + half}, **changes,
    }  # fmt: skip
    return Case(record, "yours", f"yours: {device}", device)


@pytest.mark.parametrize(
    ("a", "b", "verdict"),
    [
        (case(1.0), case(1.3), "faster"),
        (case(1.3), case(1.0), "slower"),
        (case(1.0), case(1.05), "same"),
        (case(1.0), case(1.15), "ambiguous"),
        (case(1.0, 0.2), case(1.15, 0.05), "ambiguous"),
        (case(1.15, 0.05), case(1.0, 0.2), "ambiguous"),
        (case(1.0), case(9.0, steady=False), "ambiguous"),
        (case(9.0, steady=False), case(1.0), "ambiguous"),
    ],
)
def test_one_device_by_interval(a, b, verdict):
    found = compare(a, b)
    assert found.verdict == verdict and found.ratio == a["seconds"]["mean"] / b["seconds"]["mean"] and not found.shares
    assert "yours: a CPU" in repr(found)


def test_a_cpu_with_more_threads_is_another_device():
    """Many virtual machines give their processors the same name."""
    shares = {"of_ceiling_flops": 0.5, "of_ceiling_bytes": None}
    a, b = (Case(case(s, rates=shares), "yours", "yours", "a CPU", {"threads": n}) for s, n in ((1.0, 2), (0.1, 16)))
    assert compare(a, b).verdict == "other device" and compare(a, a).verdict == "same"


def test_two_devices_by_shares_of_their_own_ceilings():
    a = case(1.0, rates={"of_ceiling_flops": 0.5, "of_ceiling_bytes": 0.1})
    b = case(0.01, device="a card", rates={"of_ceiling_flops": 0.25, "of_ceiling_bytes": None})
    found = compare(a, b)
    assert (found.verdict, found.ratio, found.shares) == ("other device", None, {"FLOP/s": (0.5, 0.25)})
    assert "50 % against 25 %" in repr(found) and " s " not in found.why.replace("FLOP/s", "")


@pytest.mark.parametrize(
    ("b", "says"),
    [
        (case(1.0, counted={"flops": 1024, "bytes": 768, "convention": "TORCH"}), "by EXACT, the other by TORCH"),
        (case(1.0, counted={"flops": 2048, "bytes": 768, "convention": "EXACT"}), "different work"),
        (case(1.0, params={"n": 16}), "different cases: params"),
        (case(1.0, experiment="y"), "different cases: experiment"),
        (case(1.0, dtype="bf16"), "different cases: dtype"),
        (case(1.0, verdict="impossible"), "is impossible and is not compared"),
        (case(1.0, device="a card"), r"ceilings are not known of both: fk\.ceilings"),
        (case(1.0, device="a card", rates={"of_ceiling_flops": 0.5}), "not known of both"),
    ],
)
def test_what_cannot_be_compared_is_refused(b, says):
    for pair in ((case(1.0), b), (b, case(1.0))):
        with pytest.raises(ValueError, match=says if pair[0]["counted"]["convention"] == "EXACT" else "other by EXACT"):
            compare(*pair)


def test_a_published_row_has_no_interval():
    [theirs] = records("matmul_sizes", owner="theirs", device="h100 sxm", dtype="bf16")
    with pytest.raises(ValueError, match="no interval"):
        compare(theirs, case(1.0))
