"""Names are read generously, and one that is not known gets suggestions."""

import pytest

from flopkit.names import elsewhere, find, hint, plain

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
        ("ResNet-51", "did you mean resnet50 or resnet18?"),
        ("zebra", "known: resnet18, resnet50, wide_resnet-50.2"),
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


def test_eight_near_names_are_enough():
    """And so are eight of those that there are, where none is near."""
    gpts = [f"gpt-{i}" for i in range(12)]
    assert hint("gpt-11x", gpts) == "did you mean gpt-11, gpt-1, gpt-10, gpt-0, gpt-2, gpt-3, gpt-4, gpt-5 or 4 more?"
    assert hint("gpt", gpts[:8]) == "did you mean gpt-0, gpt-1, gpt-2, gpt-3, gpt-4, gpt-5, gpt-6 or gpt-7?"
    assert hint("bert", gpts) == "known: gpt-0, gpt-1, gpt-2, gpt-3, gpt-4, gpt-5, gpt-6, gpt-7, 4 more"
    with pytest.raises(ValueError, match=r"gpt-7, 4 more; f\(\) lists them$"):
        find("zebra", gpts, "a model", listed="f()")


def test_the_family_comes_before_letters():
    models = ["mixtral-8x7b", "llama-3-8b", "stout", "scout-2", "llama-3.1-405b", "t4", "h100-sxm", "h200", "ah1000b"]
    assert hint("llama-4-scout", models) == "did you mean llama-3.1-405b or llama-3-8b?"
    assert hint("h1000", models) == "did you mean h100-sxm or h200?"  # ah1000b has more of its letters
    assert hint("h100-sxm-96gb", models) == "did you mean h100-sxm or h200?"
    assert hint("llema", models) == "did you mean llama-3-8b?"  # no family: letters


def test_what_others_know_is_said_where_it_is():
    """After near names of one's own, before those that only look alike."""
    with pytest.raises(ValueError, match=r"name='ResNet-50' is not a model; here it is fk\.load\(name\)"):
        find("ResNet-50", ["llama-3-8b", "respect-50"], "a model")
    with pytest.raises(ValueError, match=r"name='resnet51' is not a network; did you mean resnet18\?"):
        find("resnet51", ["resnet18"], "a network")
    assert elsewhere("Linear") == "fk.dense(tokens=, d_in=, d_out=)" and elsewhere("") == elsewhere("lama") == ""
