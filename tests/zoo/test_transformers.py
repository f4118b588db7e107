"""transformers: every kind of model whose default configuration can be made small by `small_transformers`, and runs on plain inputs."""

from __future__ import annotations

import pytest
from small_transformers import made
from whole_models import check

pytest.importorskip("transformers", reason='needs transformers: pip install "flopkit[peers]"')

# What `make test` counts, too.
DAILY = "bert clip_vision_model falcon_mamba gemma3_text gpt2 gpt_oss llama mixtral qwen3_next segformer t5 vit wav2vec2 whisper".split()
# Kinds that need other inputs or sizes are missing, and those of which torch's Fourier transforms are a part.
KINDS = """
    afmoe aimv2_vision_model albert apertus arcee aria aria_text audioflamingo3 aya_vision bart beam beit bert
    bert-generation big_bird bigbird_pegasus biogpt bit bitnet blenderbot blenderbot-small bloom camembert canine
    chinese_clip_vision_model clip_text_model clip_vision_model cohere cohere2 cohere2_moe cohere2_vision convbert
    convnext convnextv2 cosmos3_omni cpmant ctrl cvt cwm data2vec-audio data2vec-text data2vec-vision deberta deberta-v2
    deepseek_v4 deepseek_vl deepseek_vl_hybrid deit diffllama dinov2 dinov2_with_registers dinov3_convnext dinov3_vit
    distilbert doge dpr dpt electra ernie ernie4_5 ernie4_5_moe eurobert evolla exaone4 exaone4_5 exaone_moe falcon
    falcon_h1 falcon_mamba flava flex_olmo flint focalnet fsmt funnel fuyu gemma gemma2 gemma3 gemma3_text git glm glm4
    glm4_moe glmasr glmasr_encoder glpn got_ocr2 gpt-sw3 gpt2 gpt_bigcode gpt_neo gpt_neox gpt_neox_japanese gpt_oss
    granite granite_docling_text granite_swa granitemoe granitemoe_swa granitemoeshared gte helium hgnet_v2 hiera
    higgs_audio_v2 hubert hy_v3 hy_v4 hyperclovax hyperclovax_vision_v2 ibert idefics2 idefics3 ijepa imagegpt
    inkling2_text inkling_text internlm3 internvl internvl_vision iquestcoder jais2 jetmoe jina_embeddings_v3 kolibri1
    kosmos-2.5 laguna layoutlm led levit lfm2 lfm2_vl lfm3 lfm3_vl lighton_ocr llama llama4_text llava llava_next
    llava_next_video llava_onevision longformer longt5 m2m_100 mamba marian markuplm mbart megatron-bert mellum mgp-str
    mimo_v2_flash minicpm_ocr minicpmv4_6 minicpmv4_7 minimax minimax_m2 minimax_m3_vl minimax_m3_vl_text ministral3
    mistral mistral3 mixtral mlcd mlcd_vision_model mllama mobilebert mobilenet_v1 mobilenet_v2 mobilevit mobilevitv2
    modernbert modernbert-decoder modernvbert molmo2_text moshi moss_transcribe_diarize moss_transcribe_diarize_audio
    mpnet mpt mra mt5 muse_glimmer_text muse_spark_text musicflamingo mvp nanochat nemotron_h nllb-moe nomic_bert
    nystromformer olmo olmo2 olmo3 olmo_hybrid olmoe openai-gpt openai_privacy_filter opt ovis2 paligemma pegasus
    pegasus_x persimmon phi phi3 phi4_multimodal phimoe pixio pixtral plbart poolformer pp_ocrv5_server_rec
    pp_ocrv6_small_rec pp_ocrv6_tiny_rec prophetnet pvt pvt_v2 qianfan_ocr qianfan_ocr_vision qwen2 qwen2_audio
    qwen2_audio_encoder qwen2_moe qwen3 qwen3_5_moe_text qwen3_5_text qwen3_asr qwen3_moe qwen3_next
    qwen3_omni_moe_thinker qwen3_vl qwen3_vl_moe qwen3_vl_moe_text qwen3_vl_text radio regnet rembert resnet roberta
    roberta-prelayernorm roc_bert roformer sam3_vision_model sam3_vit_model sam_hq_vision_model sam_vision_model seed_oss
    segformer sew sew-d siglip_vision_model smollm3 smolvlm solar_open splinter squeezebert stablelm starcoder2
    swiftformer switch_transformers t5 tapas textnet tipsv2 tipsv2_text_model tipsv2_vision_model ultrabert ultravbert
    umt5 unispeech unispeech-sat unlimited_ocr vaultgemma video_llama_3 video_llava vipllava visual_bert vit vit_mae
    vit_msn vitdet vits voxtral voxtral_encoder voxtral_realtime_encoder wav2vec2 wav2vec2-conformer wavlm whisper xglm
    xlm-roberta xlm-roberta-xl yolos yoso zaya
""".split()
# Own `autograd.Function`s, whose backward passes the walk does not see.
OWN_BACKWARD = {"yoso"}
assert {*DAILY, *OWN_BACKWARD} <= {*KINDS}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", [pytest.param(kind, marks=() if kind in DAILY else pytest.mark.zoo) for kind in KINDS])
def test_counted(kind):
    check(*made(kind), meta=False, backward=kind not in OWN_BACKWARD)
