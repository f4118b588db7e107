"""The models that are known by name: against what their makers print, and against transformers' own classes, to the last parameter."""

import json
import re

import pytest

import flopkit as fk
from flopkit.models.catalogue import the_model
from flopkit.models.files.aliases import FAMILIES, NAMES
from flopkit.models.files.configs import config_names, hf_config

QUOTED = "its model card or paper, quoted at second hand"
GEMMA_2, GEMMA_3 = "Gemma 2, arXiv:2408.00118, table of parameters", "Gemma 3, arXiv:2503.19786, table 1"
NARAYANAN, KORTHIKANTI = (
    "Narayanan et al. 2021, arXiv:2104.04473, table 1",
    "Korthikanti et al. 2022, arXiv:2205.05198, table 3",
)
NANOGPT, BERT = "nanoGPT, model.py, GPT.from_pretrained", "google-research/bert, README.md"
LLAMA = "meta-llama/llama-models, models/llama3_2/MODEL_CARD.md"
DEEPSEEK, CHINCHILLA = "deepseek-ai/DeepSeek-V3, README_WEIGHTS.md", "Hoffmann et al. 2022, arXiv:2203.15556, table 4"

PYTHIA = "https://huggingface.co/EleutherAI/pythia-70m, model card, table of exact parameter counts"
BLOOM = "https://huggingface.co/bigscience/bloom, model card; of the small ones as openllmlist.com repeats theirs"
FLAN = "what transformers 4 counts in the checkpoints of google/flan-t5, as many notebooks on GitHub print it (found by the number)"
DBRX, HUNYUAN = "databricks/dbrx, README.md", "Tencent-Hunyuan/Hunyuan-A13B, README.md"
MINIMAX, KIMI_LINEAR = "MiniMax-AI/MiniMax-M2, README.md", "MoonshotAI/Kimi-Linear, README.md"
JAMBA, OLMOE = "transformers, docs/source/en/model_doc/jamba.md", "Megatron-Bridge, docs/models/olmoe/olmoe.md"
ITS_NAME = "its maker, in the name of the checkpoint"
BUILT = "transformers 5.23.0: the class that the published config.json names, built on meta"

# A name, what is counted, the printed number, half of its last printed digit (0: every digit is printed), and who prints it.
PRINTED = [
    ("llama-2-7b", "params", 6.74e9, 5e6, QUOTED),
    ("llama-2-13b", "params", 13.02e9, 5e6, QUOTED),
    ("llama-2-70b", "params", 68.98e9, 5e6, QUOTED),
    ("llama-3-8b", "params", 8.03e9, 5e6, QUOTED),
    ("llama-3-70b", "params", 70.6e9, 5e7, QUOTED),
    ("llama-3.1-405b", "params", 405.9e9, 5e7, QUOTED),
    ("llama-3.2-3b", "params", 3.21e9, 5e6, LLAMA),
    ("gpt-3-175b", "params", 174.6e9, 5e7, "Narayanan et al. 2021, table 2"),
    ("mt-nlg-530b", "params", 529.6e9, 5e7, "Narayanan et al. 2021, table 2"),
    ("mixtral-8x7b", "params", 46.7e9, 5e7, QUOTED),
    ("mixtral-8x7b", "active_params", 12.9e9, 5e7, QUOTED),
    ("mixtral-8x22b", "params", 140.6e9, 5e7, QUOTED),
    ("deepseek-v2", "params", 236e9, 5e8, QUOTED),
    ("deepseek-v2", "active_params", 21e9, 5e8, QUOTED),
    ("deepseek-v2-lite", "params", 15.7e9, 5e7, QUOTED),
    ("deepseek-v3", "params", 671e9, 5e8, DEEPSEEK),
    ("kimi-k2", "params", 1e12, 5e10, QUOTED),
    ("qwen2.5-72b", "params", 72.7e9, 5e7, QUOTED),
    ("qwen3-30b-a3b", "params", 30.5e9, 5e7, QUOTED),
    ("qwen3-235b-a22b", "params", 235e9, 5e8, QUOTED),
    ("qwen3-235b-a22b", "active_params", 22e9, 5e8, QUOTED),
    ("gpt-oss-20b", "params", 20.9e9, 5e7, "gpt-oss model card"),
    ("gpt-oss-120b", "params", 116.8e9, 5e7, "gpt-oss model card"),
    ("qwen2.5-7b", "without embeddings", 6.53e9, 5e6, "Qwen2.5-7B model card"),
    ("qwen3-8b", "params", 8.2e9, 5e7, "Qwen3-8B model card"),
    ("qwen3-8b", "without embeddings", 6.95e9, 5e6, "Qwen3-8B model card"),
    ("gopher-280b", "params", 280e9, 5e8, CHINCHILLA),
    ("chinchilla-70b", "params", 70e9, 5e8, CHINCHILLA),
    ("gemma-2-2b", "without embeddings", 2_024_517_888, 0, GEMMA_2),
    ("gemma-2-9b", "without embeddings", 8_324_201_984, 0, GEMMA_2),
    ("gemma-2-27b", "without embeddings", 26_047_480_320, 0, GEMMA_2),
    ("gemma-3-1b", "without embeddings", 698e6, 5e5, GEMMA_3),
    ("gemma-3-4b", "without embeddings", 3209e6, 5e5, GEMMA_3),
    ("gemma-3-12b", "without embeddings", 10759e6, 5e5, GEMMA_3),
    ("gemma-3-27b", "without embeddings", 25600e6, 5e5, GEMMA_3),
    ("gpt2", "params", 124e6, 5e5, NANOGPT),
    ("gpt2-medium", "params", 350e6, 5e6, NANOGPT),
    ("gpt2-large", "params", 774e6, 5e5, NANOGPT),
    ("gpt2-xl", "params", 1558e6, 5e5, NANOGPT),
    ("bert-base", "params", 110e6, 5e6, BERT),
    ("bert-large", "params", 340e6, 5e6, BERT),
    ("megatron-1.7b", "params", 1.7e9, 5e7, NARAYANAN),
    ("megatron-3.6b", "params", 3.6e9, 5e7, NARAYANAN),
    ("megatron-7.5b", "params", 7.5e9, 5e7, NARAYANAN),
    ("megatron-18.4b", "params", 18.4e9, 5e7, NARAYANAN),
    ("megatron-39.1b", "params", 39.1e9, 5e7, NARAYANAN),
    ("megatron-76.1b", "params", 76.1e9, 5e7, NARAYANAN),
    ("megatron-145.6b", "params", 145.6e9, 5e7, NARAYANAN),
    ("megatron-310.1b", "params", 310.1e9, 5e7, NARAYANAN),
    ("megatron-529.6b", "params", 529.6e9, 5e7, NARAYANAN),
    ("megatron-1t", "params", 1008.0e9, 5e7, NARAYANAN),
    ("megatron-22b", "params", 22e9, 5e8, KORTHIKANTI),
    ("megatron-175b", "params", 175e9, 5e8, KORTHIKANTI),
    ("qwen3.5-397b-a17b", "active_params", 17e9, 5e8, ITS_NAME),
    ("qwen3.5-27b", "params", 27e9, 5e8, ITS_NAME),
    ("qwen3-next-80b-a3b", "params", 80e9, 5e8, ITS_NAME),
    ("qwen3.5-122b-a10b", "active_params", 10e9, 5e8, ITS_NAME),
    ("qwen3.5-122b-a10b", "params", 122e9, 5e8, ITS_NAME),
    ("qwen3.5-35b-a3b", "params", 35e9, 5e8, ITS_NAME),
    ("qwen3-vl-235b-a22b", "active_params", 22e9, 5e8, ITS_NAME),
    ("qwen3-vl-235b-a22b", "params", 235e9, 5e8, ITS_NAME),
    ("qwen3-vl-30b-a3b", "active_params", 3e9, 5e8, ITS_NAME),
    ("olmo-3.1-32b", "params", 32e9, 5e8, ITS_NAME),
    ("exaone-4.0-32b", "params", 32e9, 5e8, ITS_NAME),
    ("devstral-small-2-24b", "params", 24e9, 5e8, ITS_NAME),
    ("gemma-4-31b", "params", 31e9, 5e8, ITS_NAME),
    ("llama-4-maverick", "active_params", 17e9, 5e8, ITS_NAME),
    ("llama-4-scout", "active_params", 17e9, 5e8, ITS_NAME),
    ("codellama-34b", "params", 34e9, 5e8, ITS_NAME),
    ("starcoder2-7b", "params", 7e9, 5e8, ITS_NAME),
    ("gpt-neox-20b", "without embeddings", 20e9, 5e8, ITS_NAME),
    ("gpt-j-6b", "params", 6e9, 5e8, ITS_NAME),
    ("tinyllama-1.1b", "params", 1.1e9, 5e7, ITS_NAME),
    ("smollm2-135m", "params", 135e6, 5e5, ITS_NAME),
    ("olmo-3-7b", "params", 7e9, 5e8, ITS_NAME),
    ("aya-23-8b", "params", 8e9, 5e8, ITS_NAME),
    ("command-r-35b", "params", 35e9, 5e8, ITS_NAME),
    ("ernie-4.5-21b-a3b", "active_params", 3e9, 5e8, ITS_NAME),
    ("smollm3-3b", "params", 3e9, 5e8, ITS_NAME),
    ("mixtral-8x22b-instruct-v0.1", "params", 140.6e9, 5e7, ITS_NAME),
    ("all-minilm-l6-v2", "params", 22_713_216, 0, BUILT),
    ("bart-base", "params", 139_420_416, 0, BUILT),
    ("bart-large", "params", 406_291_456, 0, BUILT),
    ("bart-large-cnn", "params", 406_290_432, 0, BUILT),
    ("clip-vit-base-patch16", "params", 149_620_737, 0, BUILT),
    ("clip-vit-base-patch32", "params", 151_277_313, 0, BUILT),
    ("falcon-7b", "params", 6_921_720_704, 0, BUILT),
    ("falcon-40b", "params", 41_303_293_952, 0, BUILT),
    ("flan-t5-small", "params", 76_961_152, 0, FLAN),
    ("flan-t5-base", "params", 247_577_856, 0, FLAN),
    ("flan-t5-large", "params", 783_150_080, 0, FLAN),
    ("olmo-7b", "params", 6_888_095_744, 0, BUILT),
    ("opt-125m", "params", 125_239_296, 0, BUILT),
    ("phi-1.5", "params", 1_418_270_720, 0, BUILT),
    ("phi-2", "params", 2_779_683_840, 0, BUILT),
    ("whisper-large-v3", "params", 1_543_490_560, 0, BUILT),
    ("whisper-large-v3-turbo", "params", 808_878_080, 0, BUILT),
    ("xlm-roberta-base", "params", 278_295_186, 0, BUILT),
    ("pythia-70m", "params", 70_426_624, 0, PYTHIA),
    ("pythia-160m", "params", 162_322_944, 0, PYTHIA),
    ("pythia-410m", "params", 405_334_016, 0, PYTHIA),
    ("pythia-1b", "params", 1_011_781_632, 0, PYTHIA),
    ("pythia-1.4b", "params", 1_414_647_808, 0, PYTHIA),
    ("pythia-2.8b", "params", 2_775_208_960, 0, PYTHIA),
    ("pythia-6.9b", "params", 6_857_302_016, 0, PYTHIA),
    ("pythia-12b", "params", 11_846_072_320, 0, PYTHIA),
    ("bloom-560m", "params", 559_214_592, 0, BLOOM),
    ("bloom-7b1", "params", 7_069_016_064, 0, BLOOM),
    ("bloom-176b", "params", 176_247_271_424, 0, BLOOM),
    ("opt-66b", "params", 66e9, 5e8, ITS_NAME),
    ("opt-175b", "params", 175e9, 5e8, ITS_NAME),
    ("bge-large-en-v1.5", "params", 335_141_888, 0, BUILT),
    ("bge-m3", "params", 567_754_752, 0, BUILT),
    ("codellama-34b", "params", 33_744_232_448, 0, BUILT),
    ("deepseek-r1", "params", 671_026_404_352, 0, BUILT),
    ("deepseek-v3.1", "params", 671_026_404_352, 0, BUILT),
    ("deepseek-v3.2", "params", 671_877_929_216, 0, BUILT),
    ("e5-mistral-7b", "params", 7_110_660_096, 0, BUILT),
    ("exaone-4.0-32b", "params", 32_003_216_384, 0, BUILT),
    ("gemma-2b", "params", 2_506_172_416, 0, BUILT),
    ("gemma-4-26b-a4b", "params", 25_233_141_760, 0, BUILT),
    ("gemma-7b", "params", 8_537_680_896, 0, BUILT),
    ("glm-4.5v", "params", 106_852_245_504, 0, BUILT),
    ("glm-5", "params", 743_911_199_232, 0, BUILT),
    ("glm-5.1", "params", 743_911_199_232, 0, BUILT),
    ("glm-5.2", "params", 743_377_000_704, 0, BUILT),
    ("kimi-k2.5", "params", 1_026_408_209_408, 0, BUILT),
    ("llama-4-maverick", "params", 400_711_848_960, 0, BUILT),
    ("minimax-m2.5", "params", 228_689_748_992, 0, BUILT),
    ("ministral-3-3b", "params", 3_429_006_336, 0, BUILT),
    ("nemotron-3-nano-30b-a3b", "params", 31_577_937_344, 0, BUILT),
    ("nemotron-3-super-120b-a12b", "params", 120_668_687_360, 0, BUILT),
    ("nemotron-3-ultra-550b-a55b", "params", 549_308_968_960, 0, BUILT),
    ("nllb-200-distilled-600m", "params", 615_072_768, 0, BUILT),
    ("olmo-3.1-32b", "params", 32_233_522_176, 0, BUILT),
    ("phi-1", "params", 1_414_562_935, 0, BUILT),
    ("phi-3-mini", "params", 3_821_079_552, 0, BUILT),
    ("phi-3.5-mini", "params", 3_821_079_552, 0, BUILT),
    ("phi-3.5-moe", "params", 41_873_153_344, 0, BUILT),
    ("phi-4", "params", 14_659_507_200, 0, BUILT),
    ("phi-4-mini-reasoning", "params", 3_836_021_760, 0, BUILT),
    ("qwen2-vl-2b", "params", 1_543_714_304, 0, BUILT),
    ("qwen2-vl-7b", "params", 7_615_616_512, 0, BUILT),
    ("qwen3-next-80b-a3b", "params", 79_674_391_296, 0, BUILT),
    ("qwen3-vl-2b", "params", 1_720_574_976, 0, BUILT),
    ("qwen3-vl-30b-a3b", "params", 30_532_122_624, 0, BUILT),
    ("qwen3-vl-32b", "params", 32_762_123_264, 0, BUILT),
    ("qwen3.5-122b-a10b", "params", 122_111_526_912, 0, BUILT),
    ("qwen3.5-27b", "params", 26_895_998_464, 0, BUILT),
    ("qwen3.5-397b-a17b", "params", 396_346_350_336, 0, BUILT),
    ("smollm-1.7b", "params", 1_711_376_384, 0, BUILT),
    ("smollm2-360m", "params", 361_821_120, 0, BUILT),
    ("stablelm-3b", "params", 2_795_443_200, 0, BUILT),
    ("starcoder2-7b", "params", 7_173_923_840, 0, BUILT),
    ("tinyllama-1.1b", "params", 1_100_048_384, 0, BUILT),
    ("vit-base-patch16-224-in21k", "params", 86_389_248, 0, BUILT),
    ("whisper-tiny", "params", 37_760_640, 0, BUILT),
    ("flan-t5-xl", "params", 2_849_757_184, 0, FLAN),
    ("flan-t5-xxl", "params", 11_135_332_352, 0, FLAN),
    ("dbrx", "params", 132e9, 5e8, DBRX),
    ("dbrx", "active_params", 36e9, 5e8, DBRX),
    ("hunyuan-a13b", "params", 80e9, 5e8, HUNYUAN),
    ("hunyuan-a13b", "active_params", 13e9, 5e8, HUNYUAN),
    ("minimax-m2", "params", 230e9, 5e9, MINIMAX),
    ("seed-oss-36b", "params", 36e9, 5e8, "ByteDance-Seed/seed-oss, README.md"),
    ("jamba-v0.1", "params", 52e9, 5e8, JAMBA),
    ("jamba-v0.1", "active_params", 12e9, 5e8, JAMBA),
    ("jamba-1.5-mini", "params", 52e9, 5e8, QUOTED),
    ("jamba-1.5-mini", "active_params", 12e9, 5e8, QUOTED),
    ("falcon-mamba-7b", "params", 7_272_665_088, 0, BUILT),
    ("solar-10.7b", "params", 10.7e9, 5e7, ITS_NAME),
    ("kimi-linear-48b-a3b", "active_params", 3e9, 5e8, KIMI_LINEAR),
    ("kimi-linear-48b-a3b", "without embeddings", 48e9, 5e8, KIMI_LINEAR),
    ("olmoe-1b-7b", "active_params", 1.3e9, 5e7, OLMOE),
    ("olmoe-1b-7b", "params", 7e9, 5e8, OLMOE),
    ("glm-4.7-flash", "params", 30e9, 5e8, "zai-org/GLM-4.5, README.md, table of models"),
    ("mimo-v2-flash", "params", 309e9, 5e8, QUOTED),
    ("mimo-v2-flash", "active_params", 15e9, 5e8, QUOTED),
    ("qwen1.5-moe-a2.7b", "params", 14.3e9, 5e7, QUOTED),
    ("qwen1.5-moe-a2.7b", "active_params", 2.7e9, 5e7, QUOTED),
    (
        "ministral-3-8b",
        "params",
        8.5e9,
        5e7,
        "Megatron-Bridge, docs/models/mistral/ministral3.md: 8.9 billion, 0.4 of them see",
    ),
    ("gemma-3-270m", "params", 270e6, 5e6, ITS_NAME),
    ("mistral-large-2", "params", 123e9, 5e8, QUOTED),
    ("qwq-32b", "params", 32_763_876_352, 0, BUILT),  # its card prints 32.5 billion
    ("smollm2-1.7b", "params", 1.7e9, 5e7, ITS_NAME),
    ("apertus-8b", "params", 8e9, 5e8, ITS_NAME),
    ("falcon-180b", "params", 180e9, 5e9, ITS_NAME),
    ("falcon3-3b", "params", 3e9, 5e8, ITS_NAME),
    ("falcon3-7b", "params", 7e9, 5e8, ITS_NAME),
    ("falcon3-10b", "params", 10e9, 5e8, ITS_NAME),
    ("deepseek-r1-distill-llama-8b", "params", 8e9, 5e8, ITS_NAME),
    ("olmo-3-32b", "params", 32e9, 5e8, ITS_NAME),
    ("nemotron-nano-9b-v2", "params", 9e9, 5e8, ITS_NAME),
    ("nemotron-nano-12b-v2", "params", 12e9, 5e8, ITS_NAME),
    ("nemotron-h-8b", "params", 8e9, 5e8, ITS_NAME),
    ("t5-3b", "params", 3e9, 5e8, ITS_NAME),
    ("t5-11b", "params", 11e9, 5e8, ITS_NAME),
    ("minicpm3-4b", "params", 4e9, 5e8, ITS_NAME),
    ("apertus-70b", "params", 70_599_864_480, 0, BUILT),
    ("clip-vit-large-patch14", "params", 427_616_513, 0, BUILT),
    ("siglip-base-patch16-224", "params", 203_155_970, 0, BUILT),
    ("gemma-3n-e4b", "params", 6_835_235_568, 0, BUILT),
    ("gemma-3n-e2b", "params", 4_435_182_688, 0, BUILT),
    ("dinov3-vit7b16", "params", 6_716_035_072, 0, BUILT),
    ("dinov3-vith16plus", "params", 840_592_640, 0, BUILT),
]
# Those that another reading gives.
PRINTED_OTHERWISE = [
    ("palm-540b", "params", 540.35e9, 5e6, "without norms", QUOTED),
    ("deepseek-v3", "active_params", 37e9, 5e8, "active without input embedding", QUOTED),
    ("kimi-k2", "active_params", 32e9, 5e8, "active without input embedding", QUOTED),
    ("gpt-oss-120b", "active_params", 5.13e9, 5e6, "active without input embedding", QUOTED),
    ("gpt-oss-20b", "active_params", 3.6e9, 5e7, "active without input embedding", "gpt-oss model card"),
    ("minimax-m2", "active_params", 10e9, 5e8, "active without input embedding", MINIMAX),
]
# Those whose printed number is ours, cut off after its last digit and not rounded.
CUT_OFF = [
    ("llama-3.2-1b", "params", 1.23e9, 5e6, LLAMA),
    ("qwen2.5-7b", "params", 7.61e9, 5e6, "Qwen2.5-7B model card"),
    ("mixtral-8x22b", "active_params", 39.1e9, 5e7, QUOTED),
    ("qwen3-30b-a3b", "active_params", 3.3e9, 5e7, QUOTED),
    ("deepseek-v2-lite", "active without input embedding", 2.4e9, 5e7, QUOTED),
]
# Those that no reading gives.
NOT_REPRODUCED = [("deepseek-v3", 36.7e9, 5e7, f"active, with embedding and head: {DEEPSEEK}")]


def counted(name, what):
    model = fk.load(name)
    if what in ("params", "active_params"):
        return getattr(model, what)
    tables = model.forward(seq=1).params_by_role
    return {
        "without embeddings": model.params - tables["embedding"] - tables["head"],
        "without norms": model.params - tables["norm"],
        "active without input embedding": model.active_params - tables["embedding"],
    }[what]


def is_printed(found, printed, half):
    return abs(found - printed) <= half


@pytest.mark.parametrize("name, what, printed, half, source", PRINTED)
def test_parameters_as_they_are_printed(name, what, printed, half, source):
    assert is_printed(counted(name, what), printed, half), source


@pytest.mark.parametrize("name, what, printed, half, reading, source", PRINTED_OTHERWISE)
def test_parameters_that_another_reading_gives(name, what, printed, half, reading, source):
    assert not is_printed(counted(name, what), printed, half), "it comes out now: move the row to PRINTED"
    assert is_printed(counted(name, reading), printed, half), source


@pytest.mark.parametrize("name, what, printed, half, source", CUT_OFF)
def test_parameters_whose_last_digit_is_not_rounded(name, what, printed, half, source):
    found = counted(name, what)
    assert not is_printed(found, printed, half), "it comes out now: move the row to PRINTED"
    assert printed <= found < printed + 2 * half, source


@pytest.mark.parametrize("name, printed, half, source", NOT_REPRODUCED)
def test_parameters_that_no_reading_gives(name, printed, half, source):
    for what in ("active_params", "active without input embedding"):
        assert not is_printed(counted(name, what), printed, half), f"it comes out now: {source}"


def test_each_model_without_a_config_is_compared_with_a_printed_number():
    """Those with a config.json are compared with transformers' classes, convolutional networks with torchvision's, and llm-foundry's MPT
    with its table of throughput, row by row (`flopkit.published`). For the others the number printed by their authors is all there is."""
    rows = {name for name, *_ in (*PRINTED, *PRINTED_OTHERWISE, *CUT_OFF, *NOT_REPRODUCED)}
    alone = {name for name in fk.model_names() if not name.startswith("mpt-")} - {
        *config_names(),
        *fk.models.cnn_names(),
    }
    assert "gpt-3-175b" in alone and alone - rows == set(), "add rows to PRINTED"


def test_the_vision_transformer_is_torchvision_s():
    models = pytest.importorskip("torchvision", reason="the number is torchvision's").models
    assert fk.load("vit-b-16").params == models.ViT_B_16_Weights.IMAGENET1K_V1.meta["num_params"]


def test_the_layer_for_multi_token_prediction():
    """Its makers print 11.5 billion parameters of its own and 2.4 billion active ones with both tables: the layer alone, without the matrix
    that joins (7168 × 14336) and its norms."""
    with_it, without = fk.load("deepseek-v3", mtp=True), fk.load("deepseek-v3")
    own, active = with_it.params - without.params, with_it.active_params - without.active_params
    layer = without.layer(1, seq=1).params
    join, norms, tables = 2 * 7168 * 7168, 3 * 7168, 2 * 129280 * 7168
    assert own == layer + join + norms
    assert is_printed(layer, 11.5e9, 5e7) and not is_printed(own, 11.5e9, 5e7)
    assert is_printed(active - join - norms + tables, 2.4e9, 5e7)
    head = 2 * 129280 * 7168
    forward = with_it.forward(seq=1).flops - without.forward(seq=1).flops
    assert forward == without.layer(1, seq=1).flops + 2 * join + head


def test_a_model_without_that_layer_says_so():
    for name in ("llama-3-8b", "gpt-3-175b", "kimi-k2"):
        with pytest.raises(ValueError, match=f"{name}: mtp=True: there is no layer for multi-token prediction"):
            fk.load(name, mtp=True)


def test_exact_totals():
    """Known elsewhere to the last parameter."""
    assert fk.load("llama-3-8b").params == 8_030_261_248
    assert fk.load("llama-3.2-1b").params == 1_235_814_400
    assert fk.load("llama-3.2-3b").params == 3_212_749_824
    assert fk.load("gpt2").params == 124_439_808
    assert fk.load("mixtral-8x7b").params == 46_702_792_704


@pytest.mark.parametrize("name", fk.model_names())
def test_each_model_has_a_name_a_source_and_a_day(name):
    model = fk.load(name)
    assert model.name == name
    assert re.search(r"\w.* \(20\d\d-\d\d-\d\d\)$", model.source), model.source
    assert 0 < model.active_params <= model.params
    assert model.source in repr(model) and name in model._repr_html_()


@pytest.mark.parametrize("name", fk.model_names())
def test_case_and_separators_do_not_matter(name):
    wanted = fk.load(name)
    for spelled in (name.upper(), name.replace("-", " "), name.replace("-", "_"), re.sub(r"[-.]", "", name)):
        assert fk.load(spelled) == wanted


@pytest.mark.parametrize("name", [name for name in fk.model_names() if re.search(r"-[\d.]+[bmt](-|$)", name)])
def test_the_size_in_its_name_is_about_its_size(name):
    """Names are generous (gemma-2-2b has 2.6 billion), but no digit of a width can be far off. Where two stand (olmoe-1b-7b), the last is of all."""
    amount, unit = re.findall(r"-([\d.]+)([bmt])(?=-|$)", name)[-1]
    assert 2 / 3 < fk.load(name).params / (float(amount) * {"m": 1e6, "b": 1e9, "t": 1e12}[unit]) < 4 / 3


def test_no_two_names_are_the_same_to_a_reader():
    names = fk.model_names()
    assert names == sorted(set(names))
    assert len({re.sub(r"[\s_.-]", "", name).lower() for name in names}) == len(names) > 70


@pytest.mark.parametrize(
    "name, near",
    [("llama-4-8b", "llama-3-8b"), ("gpt3", "gpt-3-175b"), ("palm", "palm-540b"), ("qwen3", "qwen3-8b"), ("gpt-oss-12b", "gpt-oss-120b")],
)  # fmt: skip
def test_a_name_that_is_not_known_has_near_ones(name, near):
    with pytest.raises(ValueError, match=rf"name='{name}' is not a known model; did you mean .*{re.escape(near)}"):
        fk.load(name)


IDS = {
    "meta-llama/Meta-Llama-3-8B": "llama-3-8b", "meta-llama/Llama-3.1-8B-Instruct": "llama-3.1-8b", "meta-llama/Llama-2-7b-chat-hf": "llama-2-7b",
    "Qwen/Qwen2.5-7B-Instruct": "qwen2.5-7b", "qwen/qwen3-8b": "qwen3-8b", "google/gemma-2-9b-it": "gemma-2-9b", "deepseek-r1": "deepseek-r1",
    "deepseek-ai/DeepSeek-V3-0324": "deepseek-v3", "tinyllama": "tinyllama-1.1b", "TinyLlama/TinyLlama-1.1B-Chat-v1.0": "tinyllama-1.1b",
    "mistralai/Mistral-7B-v0.1": "mistral-7b", "mistralai/Mixtral-8x7B-Instruct-v0.1": "mixtral-8x7b", "bloom": "bloom-176b",
    "google-bert/bert-base-uncased": "bert-base", "openai-community/gpt2-xl": "gpt2-xl", "EleutherAI/pythia-1.4b-deduped": "pythia-1.4b",
    "Llama-3.3-70B-Instruct": "llama-3.3-70b", "allenai/OLMo-2-1124-7B": "olmo-2-7b",
    "Qwen/QwQ-32B": "qwq-32b", "mistralai/Mistral-Large-Instruct-2407": "mistral-large-2", "swiss-ai/Apertus-8B-Instruct-2509": "apertus-8b",
    "databricks/dbrx-instruct": "dbrx", "qwen3-next": "qwen3-next-80b-a3b", "kimi-linear": "kimi-linear-48b-a3b",
    "facebook/dinov3-vitl16-pretrain-lvd1689m": "dinov3-vitl16",
}  # fmt: skip


@pytest.mark.parametrize("given", IDS)
def test_an_id_of_the_hub_is_a_name_where_its_publisher_has_the_same_architecture_there(given):
    assert fk.load(given) == fk.load(IDS[given])


STRANGERS = {
    "somebody/Llama-3-8B": "did you mean llama-3-8b",  # another's may be another model
    "mistralai/Mistral-7B-Instruct-v0.2": "did you mean mistral-7b",  # without the window of the first
    "Qwen/Qwen3-8B-Base": "did you mean qwen3-8b",
    "deepseek-ai/DeepSeek-R1-Distill-Qwen-7B": "did you mean deepseek-r1-distill-llama-",
    "zai-org/GLM-4.6V": "did you mean glm-4.6",
    "facebook/opt-1.3b": "did you mean opt-",  # spelled as opt-13b would be
    "llama-3-8b-tuned": "did you mean llama-3-8b",
}


@pytest.mark.parametrize("given", STRANGERS)
def test_another_model_is_not_taken_for_one_of_like_name(given):
    with pytest.raises(ValueError, match=f"name='{given}' is not a known model; ") as caught:
        fk.load(given)
    told = str(caught.value)
    near = told.split("did you mean ")[1].split("?")[0]
    assert STRANGERS[given] in told and 1 <= near.count("-") and len(re.split(", | or ", near)) <= 9
    assert f"fk.from_hf('{given if '/' in given else 'org/name'}')" in told and "fk.models.transformer(…)" in told


def test_every_publisher_and_other_name_is_of_a_model_that_is_known():
    known = fk.model_names()
    assert set(NAMES) <= set(known)
    assert all(any(name.startswith(begin) for name in known) for begin in FAMILIES)
    meant = {re.sub(r"[\s_.-]", "", each).lower() for each in known}
    others = [re.sub(r"[\s_.-]", "", other).lower() for each in NAMES.values() for other in each]
    assert len(set(others)) == len(others) and not meant & set(others)


def test_what_is_no_name():
    with pytest.raises(TypeError, match="name=8 is not a known model: must be a name"):
        fk.load(8)


# -- against transformers ---------------------------------------------------------------------------------------

CLASSES = {"bert": "AutoModelForMaskedLM", "t5": "AutoModelForSeq2SeqLM", "vit": "AutoModelForImageClassification"}


REMOTE = {"KimiK25ForConditionalGeneration", "PhiMoEForCausalLM"}  # classes of the Hub, whose decoder transformers has
BESIDE_TEXT = ("vision", "visual", "projector", "audio")


def on_meta(name):
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers", reason='needs transformers: pip install "flopkit[peers]"')
    config = hf_config(name)
    config.pop("quantization_config", None)  # numbers, however they are stored
    (named,) = config.get("architectures", [CLASSES.get(config["model_type"], "AutoModelForCausalLM")])
    if named in REMOTE:
        config, named = config.get("text_config", config), "AutoModelForCausalLM"
        config["model_type"] = config["model_type"].replace("kimi_k2", "deepseek_v3")  # the class that the part names
    made, read = getattr(transformers, named), transformers.AutoConfig.for_model(**config)
    with torch.device("meta"):
        return (made._from_config if hasattr(made, "_from_config") else made.from_config)(
            read, dtype=torch.bfloat16
        ).eval()


def of_text(model):
    """Parameters without the parts for pictures and sound, where there are such."""
    known = dict(model.named_parameters())
    if not hasattr(model.config, "text_config") or model.config.model_type in (
        "clip",
        "siglip",
    ):  # of which both towers are counted
        return sum(each.numel() for each in known.values())
    return sum(each.numel() for name, each in known.items() if not any(part in name for part in BESIDE_TEXT))


@pytest.mark.slow  # a minute for all; each below two seconds
@pytest.mark.parametrize("name", config_names())
def test_parameters_are_those_of_transformers(name):
    config = hf_config(name)
    untied = config["model_type"] == "t5" and config["tie_word_embeddings"] is False
    # transformers 5 builds every T5 with one table; the checkpoint of an untied one has a head of its own
    apart = config["vocab_size"] * config["d_model"] if untied else 0
    assert fk.load(name).params == of_text(on_meta(name)) + apart


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["gemma-3-1b", "gpt-oss-20b", "deepseek-v2-lite", "gpt2-xl", "olmo-2-32b", "qwen3-30b-a3b"]
)
def test_the_pass_at_full_size_is_that_of_transformers(name):
    import torch

    model, ids = on_meta(name), torch.zeros(2, 64, dtype=torch.long, device="meta")
    report = fk.count(lambda: model(input_ids=ids))
    assert fk.load(name).forward(seq=64, batch=2).under("TORCH").flops == report.flops


def test_a_name_is_no_file_that_happens_to_be_here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    llama = hf_config("llama-3-8b")
    for name in ("gpt2", "GPT-2", "mine", "mine.json"):
        (tmp_path / name).write_text(json.dumps(llama), encoding="utf-8")
    assert the_model("gpt2").name == the_model("GPT-2").name == "gpt2"
    for given in ("mine", "mine.json", "./gpt2", tmp_path / "gpt2", llama):
        assert the_model(given).params == 8_030_261_248
