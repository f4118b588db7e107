"""diffusers: small networks of each kind that turns noise into images, videos and sound, and the ones that compress those."""

from __future__ import annotations

import pytest
import torch
from whole_models import check

diffusers = pytest.importorskip("diffusers", reason="make zoo installs diffusers")

pytestmark = pytest.mark.zoo


def noise(*shape):
    return torch.randn(2, *shape, generator=torch.Generator().manual_seed(sum(shape)))


TIME = torch.tensor([10, 500])
TEXT = noise(7, 32)
BLOCKS = dict(block_out_channels=(32, 64), layers_per_block=1, norm_num_groups=8)
CROSS = dict(down_block_types=("DownBlock2D", "CrossAttnDownBlock2D"), cross_attention_dim=32, attention_head_dim=8)
IMAGE = dict(num_attention_heads=2, attention_head_dim=16, num_layers=2, sample_size=8, patch_size=2, in_channels=4)
CODER = dict(
    down_block_types=("DownEncoderBlock2D",) * 2, up_block_types=("UpDecoderBlock2D",) * 2, latent_channels=4, **BLOCKS
)

# name: options, inputs
MODELS = {
    "UNet2DModel": (
        dict(down_block_types=("DownBlock2D", "AttnDownBlock2D"), up_block_types=("AttnUpBlock2D", "UpBlock2D"), **BLOCKS),
        dict(sample=noise(3, 16, 16), timestep=TIME),
    ),
    "UNet2DConditionModel": (
        dict(up_block_types=("CrossAttnUpBlock2D", "UpBlock2D"), **CROSS, **BLOCKS),
        dict(sample=noise(4, 16, 16), timestep=TIME, encoder_hidden_states=TEXT),
    ),
    "UNet3DConditionModel": (
        dict(
            down_block_types=("CrossAttnDownBlock3D", "DownBlock3D"), up_block_types=("UpBlock3D", "CrossAttnUpBlock3D"),
            cross_attention_dim=32, attention_head_dim=8, sample_size=16, **BLOCKS,
        ),
        dict(sample=noise(4, 3, 16, 16), timestep=TIME, encoder_hidden_states=TEXT),
    ),
    "UNet1DModel": (
        dict(
            in_channels=2, out_channels=2, extra_in_channels=64, block_out_channels=(32, 32, 64), sample_size=64, sample_rate=16,
            time_embedding_type="fourier",
        ),
        dict(sample=noise(2, 64), timestep=TIME),
    ),
    "ControlNetModel": (
        dict(conditioning_embedding_out_channels=(16, 32), **CROSS, **BLOCKS),
        dict(
            sample=noise(4, 16, 16), timestep=TIME, encoder_hidden_states=TEXT, controlnet_cond=noise(3, 32, 32),
            return_dict=False,
        ),
    ),
    "AutoencoderKL": (CODER, dict(sample=noise(3, 16, 16))),
    "AsymmetricAutoencoderKL": (
        dict(
            down_block_types=CODER["down_block_types"], down_block_out_channels=(32, 64), layers_per_down_block=1,
            up_block_types=CODER["up_block_types"], up_block_out_channels=(32, 64), layers_per_up_block=1, norm_num_groups=8,
        ),
        dict(sample=noise(3, 16, 16)),
    ),
    "AutoencoderTiny": (
        dict(encoder_block_out_channels=(32, 32), decoder_block_out_channels=(32, 32), num_encoder_blocks=(1, 2), num_decoder_blocks=(2, 1)),
        dict(sample=noise(3, 16, 16)),
    ),
    "AutoencoderKLWan": (dict(base_dim=8, z_dim=4, dim_mult=[1, 2], num_res_blocks=1, temperal_downsample=[True]), dict(sample=noise(3, 5, 16, 16))),
    "DiTTransformer2DModel": (
        dict(num_embeds_ada_norm=10, norm_num_groups=8, **IMAGE),
        dict(hidden_states=noise(4, 8, 8), timestep=TIME, class_labels=torch.tensor([1, 2])),
    ),
    "PixArtTransformer2DModel": (
        dict(cross_attention_dim=32, caption_channels=32, use_additional_conditions=False, **IMAGE),
        dict(
            hidden_states=noise(4, 8, 8), timestep=TIME, encoder_hidden_states=TEXT,
            added_cond_kwargs={"resolution": None, "aspect_ratio": None},
        ),
    ),
    "SD3Transformer2DModel": (
        dict(joint_attention_dim=32, caption_projection_dim=32, pooled_projection_dim=16, out_channels=4, **IMAGE),
        dict(hidden_states=noise(4, 8, 8), timestep=TIME, encoder_hidden_states=TEXT, pooled_projections=noise(16)),
    ),
    "FluxTransformer2DModel": (
        dict(
            in_channels=4, num_layers=1, num_single_layers=1, attention_head_dim=16, num_attention_heads=2,
            joint_attention_dim=32, pooled_projection_dim=16, axes_dims_rope=[4, 4, 8],
        ),
        dict(
            hidden_states=noise(16, 4), timestep=TIME / 1000, encoder_hidden_states=TEXT, pooled_projections=noise(16),
            img_ids=torch.zeros(16, 3), txt_ids=torch.zeros(7, 3),
        ),
    ),
    "AuraFlowTransformer2DModel": (
        dict(
            sample_size=8, patch_size=2, in_channels=4, num_mmdit_layers=1, num_single_dit_layers=1, attention_head_dim=16,
            num_attention_heads=2, caption_projection_dim=32, joint_attention_dim=32, pos_embed_max_size=64,
        ),
        dict(hidden_states=noise(4, 8, 8), timestep=TIME / 1000, encoder_hidden_states=TEXT),
    ),
    "SanaTransformer2DModel": (
        dict(
            patch_size=1, in_channels=4, out_channels=4, num_layers=1, attention_head_dim=16, num_attention_heads=2,
            num_cross_attention_heads=2, cross_attention_head_dim=16, cross_attention_dim=32, caption_channels=32, sample_size=8,
        ),
        dict(hidden_states=noise(4, 8, 8), timestep=TIME, encoder_hidden_states=TEXT),
    ),
    "LTXVideoTransformer3DModel": (
        dict(
            in_channels=4, out_channels=4, num_attention_heads=2, attention_head_dim=16, cross_attention_dim=32, num_layers=2,
            caption_channels=32,
        ),
        dict(
            hidden_states=noise(32, 4), timestep=TIME, encoder_hidden_states=TEXT,
            encoder_attention_mask=torch.ones(2, 7, dtype=torch.bool), num_frames=2, height=4, width=4,
        ),
    ),
    "WanTransformer3DModel": (
        dict(
            num_attention_heads=2, attention_head_dim=12, in_channels=4, out_channels=4, text_dim=32, freq_dim=32, ffn_dim=32,
            num_layers=2, patch_size=(1, 2, 2), cross_attn_norm=True, qk_norm="rms_norm_across_heads",
        ),
        dict(hidden_states=noise(4, 2, 8, 8), timestep=TIME, encoder_hidden_states=TEXT),
    ),
    "CogVideoXTransformer3DModel": (
        dict(
            num_attention_heads=2, attention_head_dim=16, in_channels=4, out_channels=4, time_embed_dim=8, text_embed_dim=32,
            num_layers=2, sample_width=8, sample_height=8, sample_frames=9, patch_size=2, max_text_seq_length=7,
        ),
        dict(hidden_states=noise(3, 4, 8, 8), timestep=TIME, encoder_hidden_states=TEXT),
    ),
    "PriorTransformer": (
        dict(num_attention_heads=2, attention_head_dim=16, num_layers=2, embedding_dim=32, num_embeddings=7, additional_embeddings=4),
        dict(hidden_states=noise(32), timestep=TIME, proj_embedding=noise(32), encoder_hidden_states=TEXT),
    ),
}  # fmt: skip


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", MODELS)
def test_counted(name):
    options, inputs = MODELS[name]
    torch.manual_seed(0)
    check(getattr(diffusers, name)(**options), inputs)
