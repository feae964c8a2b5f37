"""Vision models whose configuration is an object of their package's."""

from torch import nn

SIZES = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 64,
    "image_size": 32,
    "patch_size": 8,
}


def vit() -> nn.Module:
    from transformers import ViTConfig, ViTForImageClassification

    return ViTForImageClassification(ViTConfig(**SIZES)).eval()


def clip() -> nn.Module:
    from language import SIZES as TEXT
    from transformers import CLIPConfig, CLIPModel, CLIPTextConfig, CLIPVisionConfig

    text = CLIPTextConfig(**TEXT, bos_token_id=118, eos_token_id=119, pad_token_id=1)
    vision = CLIPVisionConfig(**SIZES)
    config = CLIPConfig(text_config=text, vision_config=vision, projection_dim=16)
    return CLIPModel(config).eval()


def yolos() -> nn.Module:
    from transformers import YolosConfig, YolosForObjectDetection

    sizes = {**SIZES, "image_size": [32, 32]}
    return YolosForObjectDetection(YolosConfig(**sizes, num_detection_tokens=5)).eval()


def segformer() -> nn.Module:
    from transformers import SegformerConfig, SegformerForSemanticSegmentation

    config = SegformerConfig(
        hidden_sizes=[8, 16, 32, 64], depths=[1, 1, 1, 1], decoder_hidden_size=16
    )
    return SegformerForSemanticSegmentation(config).eval()


def open_clip() -> nn.Module:
    from open_clip import CLIP

    vision = {"image_size": 32, "layers": 2, "width": 32, "head_width": 8, "patch_size": 8}
    text = {"context_length": 12, "vocab_size": 120, "width": 32, "heads": 4, "layers": 2}
    return CLIP(embed_dim=16, vision_cfg=vision, text_cfg=text).eval()


def autoencoder() -> nn.Module:
    from diffusers import AutoencoderKL

    blocks = {
        "down_block_types": ["DownEncoderBlock2D"] * 2,
        "up_block_types": ["UpDecoderBlock2D"] * 2,
    }
    return AutoencoderKL(**blocks, block_out_channels=[16, 32], norm_num_groups=8).eval()


def unet_condition() -> nn.Module:
    from diffusers import UNet2DConditionModel

    return UNet2DConditionModel(
        sample_size=16,
        down_block_types=["DownBlock2D", "CrossAttnDownBlock2D"],
        up_block_types=["CrossAttnUpBlock2D", "UpBlock2D"],
        block_out_channels=[16, 32],
        layers_per_block=1,
        cross_attention_dim=32,
        attention_head_dim=4,
        norm_num_groups=8,
    ).eval()


def dit() -> nn.Module:
    from diffusers import DiTTransformer2DModel

    return DiTTransformer2DModel(
        num_attention_heads=2,
        attention_head_dim=16,
        num_layers=2,
        sample_size=8,
        num_embeds_ada_norm=10,
    ).eval()


def yolo() -> nn.Module:
    from ultralytics import YOLO

    return YOLO("yolov8n.yaml").model.eval()


def yolo_segment() -> nn.Module:
    from ultralytics import YOLO

    return YOLO("yolo11n-seg.yaml").model.eval()


def preprocess() -> nn.Module:
    from kornia.enhance import Normalize
    from kornia.filters import GaussianBlur2d
    from kornia.geometry import Resize
    from torch import tensor

    scale = Normalize(tensor([0.485, 0.456, 0.406]), tensor([0.229, 0.224, 0.225]))
    return nn.Sequential(Resize((24, 24)), GaussianBlur2d((3, 3), (1.5, 1.5)), scale).eval()


def detector() -> nn.Module:
    from torch import manual_seed
    from torchvision.models.detection import ssdlite320_mobilenet_v3_large

    manual_seed(0)
    model = ssdlite320_mobilenet_v3_large(
        weights_backbone=None, num_classes=5, topk_candidates=8, detections_per_img=5
    )
    # As it is first made it gives all boxes the same score, and any of them may come first.
    for weight in model.head.parameters():
        nn.init.normal_(weight, std=0.5)
    return model.eval()


def detr() -> nn.Module:
    from transformers import DetrConfig, DetrForObjectDetection, ResNetConfig

    backbone = ResNetConfig(
        embedding_size=8,
        hidden_sizes=[8, 16, 16, 32],
        depths=[1, 1, 1, 1],
        layer_type="basic",
        out_features=["stage4"],
    )
    half = {"layers": 1, "attention_heads": 4, "ffn_dim": 32}
    sides = {f"{side}_{k}": v for side in ("encoder", "decoder") for k, v in half.items()}
    config = DetrConfig(
        use_timm_backbone=False,
        use_pretrained_backbone=False,
        backbone=None,
        backbone_config=backbone,
        d_model=32,
        num_queries=5,
        **sides,
    )
    return DetrForObjectDetection(config).eval()


def flux() -> nn.Module:
    from diffusers import FluxTransformer2DModel

    return FluxTransformer2DModel(
        in_channels=4,
        num_layers=1,
        num_single_layers=1,
        attention_head_dim=16,
        num_attention_heads=2,
        joint_attention_dim=32,
        pooled_projection_dim=32,
        axes_dims_rope=(4, 4, 8),
    ).eval()
