"""timm: the smallest model of each of its families, on images of the least size that it takes."""

from __future__ import annotations

import pytest
import torch
from whole_models import check

timm = pytest.importorskip("timm", reason="make zoo installs timm")

pytestmark = pytest.mark.zoo

# Where 64 by 64 is too small, and models that take no other size than their own.
SIZES = {"halonet_h1": 256, "efficientformer_l1": 224, "inception_v3": 96, "crossvit_tiny_240": 240}
AS_THEY_ARE = {"crossvit_tiny_240", "efficientformer_l1", "halonet_h1"}
NAMES = """
    beit_base_patch16_224 cait_xxs24_224 coat_lite_tiny convit_tiny convmixer_768_32 convnext_atto cpubone_nano crossvit_tiny_240
    csatv2 cs3darknet_focus_s cspnext_s davit_tiny deit_tiny_distilled_patch16_224 densenet121 dla46_c dpn48b edgenext_small
    efficientformer_l1 efficientformerv2_s0 efficientnet_b0 efficientvim_m1 efficientvit_b0 efficientvit_m0 eva02_tiny_patch14_224
    fasternet_t0 fastvit_t8 focalnet_tiny_srf gcvit_xxtiny ghostnet_050 gmlp_ti16_224 halonet_h1 hardcorenas_a hgnetv2_b0
    hiera_tiny_224 hrnet_w18_small iformer_t inception_next_atto inception_v3 lcnet_035 lcnetv2_small legacy_seresnet18
    legacy_xception levit_128s lowformer_b0 mambaout_femto maxvit_pico_rw_256 mobilenetv5_base mobileone_s0 mobilevit_s
    mvitv2_tiny nest_tiny nextvit_small nf_regnet_b0 pit_ti_224 poolformerv2_s12 pvt_v2_b0 rdnet_tiny regnetx_002 repghostnet_050
    repvit_m0_9 res2next50 resnest14d resnet10t resnetv2_18 rexnet_100 selecsls42 sequencer2d_s shvit_s1 skresnet18 starnet_s1
    swiftformer_xs swin_tiny_patch4_window7_224 swinv2_cr_tiny_224 swinv2_tiny_window8_256 tiny_vit_5m_224
    tnt_s_legacy_patch16_224 tresnet_m twins_svt_small visformer_tiny vit_srelpos_small_patch16_224 vit_tiny_patch16_224
    vit_tiny_r_s16_p8_224 vitamin_small_224 volo_d1_224 ese_vovnet19b_slim xcit_nano_12_p8_224
""".split()


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", NAMES)
def test_counted(name):
    size = SIZES.get(name, 64)
    torch.manual_seed(0)
    fixed = timm.models.get_pretrained_cfg(name).fixed_input_size and name not in AS_THEY_ARE
    model = timm.create_model(name, **({"img_size": size} if fixed else {}))
    check(model, (torch.randn(2, 3, size, size),))
