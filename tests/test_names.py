"""Names are read generously, and one that is not known is told its neighbours."""

import pytest

from flopkit.names import find, hint, plain

NETWORKS = ["resnet18", "resnet50", "wide_resnet-50.2"]


@pytest.mark.parametrize("spelled", ["wide_resnet-50.2", "Wide ResNet 50 2", "WIDERESNET502", "\twide-resnet_50-2\n"])
def test_case_space_and_punctuation_do_not_matter(spelled):
    assert find(spelled, NETWORKS, "a network") == "wide_resnet-50.2"
    assert plain(spelled) == "wideresnet502"


def test_an_alias_gives_the_name_that_it_stands_for():
    assert find("B-Float16", ["bf16"], "a format", aliases={"bfloat16": "bf16"}) == "bf16"


def test_an_own_key_decides_what_is_the_same():
    def last(name):
        return name.split("/")[-1]

    assert find("torch/mm", ["mm", "bmm"], "an operator", key=last) == "mm"
    with pytest.raises(ValueError, match="name='MM' is not an operator"):
        find("MM", ["mm"], "an operator", key=last)


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ("resnet", "did you mean resnet18 or resnet50?"),  # those that begin so, before those that are alike
        ("ResNet-51", "did you mean resnet50 or resnet18"),
        ("vgg", "known: resnet18, resnet50, wide_resnet-50.2"),
        ("", "known: resnet18, resnet50, wide_resnet-50.2"),
        ("-", "known: resnet18, resnet50, wide_resnet-50.2"),
    ],
)
def test_an_unknown_name_has_near_ones_or_all(wrong, says):
    with pytest.raises(ValueError) as error:
        find(wrong, NETWORKS, "a network", argument="net")
    assert str(error.value).startswith(f"net={wrong!r} is not a network; {says}")


def test_a_name_is_offered_once_however_many_spellings_it_has():
    aliases = {"bfloat16": "bf16", "bfloat": "bf16"}
    assert hint("bflo", ["bf16"], aliases) == "did you mean bf16?"
    assert hint("q", ["bf16"], aliases) == "known: bf16"


def test_what_is_known_need_not_be_text():
    assert hint(3, {31: "a width", 64: "another"}) == "did you mean 31?"


@pytest.mark.parametrize("wrong", [None, 50, ["resnet50"], b"resnet50"])
def test_what_is_no_text_is_no_name(wrong):
    with pytest.raises(TypeError, match=r"name=.* is not a network: must be a name, such as 'resnet18'"):
        find(wrong, NETWORKS, "a network")


def test_four_near_names_are_enough():
    near = hint("gpt-9x", [f"gpt-{i}" for i in range(7)])
    assert near.count(" or ") == 3, near
