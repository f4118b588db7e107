"""The figure of eight tools, against the recorded numbers, taken by hand."""

from flopkit.book.gallery import eight_tools

FIGURE = eight_tools()


def test_two_are_right_about_the_vision_transformer():
    found = FIGURE.at()
    assert found["flops"] == 35127656448 and found["near"] == 2
    # fvcore prints multiply-adds: twice 16,867,412,736 of 35,127,656,448.
    assert found["share_fvcore"] == 2 * 16867412736 / 35127656448
    assert found["share_torch"] == 33697001472 / 35127656448
    assert found["off"] == 1 - 2 * 173232616 / 35127656448 and FIGURE.texts()["off"] == "99 %"


def test_none_is_right_about_a_mixture_of_experts():
    assert FIGURE.at(program="small Mixtral")["near"] == 0


def test_multiply_adds_taken_for_flops():
    found = FIGURE.at(program="ResNet-50", reading="FLOPs, whatever it counts")
    assert found["share_fvcore"] == 4111512576 / 8178368512
    assert found["near"] == 3  # torch, its profiler, calflops


def test_how_near_is_near():
    near = [FIGURE.at(program="MobileNetV2", within=w)["near"] for w in (0.001, 0.01, 0.05, 0.1)]
    assert near == [3, 3, 5, 8]


def test_rows_tell_why():
    rows = {row["tool"]: row for row in FIGURE.data(program="small Mixtral")}
    assert rows["calflops"]["printed"] == 108233728 and "experts: 0" in rows["calflops"]["why"]
    assert {row["tool"]: row for row in FIGURE.data(program="ResNet-50")}["torch"]["why"].startswith("right")


def test_none_sees_a_recurrent_layer_but_the_hooks():
    found = FIGURE.at(program="LSTM", within=0.05)
    assert found["share_torch"] == 0 and found["near"] == 5
