"""What transformers' classes are called with on the meta device: tokens, pictures, sound."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from flopkit.sizes import size

__all__ = ["arguments_of", "inputs_of"]

_PICTURE, _FRAMES = 224, 3000


def inputs_of(model: Any, seq: Any, batch: Any) -> tuple[dict[str, Any], list[str]]:
    """What a model is called with, on the device of the context."""
    import torch

    config, kind, taken = model.config, model.main_input_name, arguments_of(model)
    notes: list[str] = []

    def tokens() -> Any:
        if seq is None:
            raise TypeError(f"seq= is missing, the tokens of a sequence for {type(model).__name__}, e.g. seq=4096")
        length = size("seq", seq)
        _check_positions(model, length)
        return torch.zeros(batch, length, dtype=torch.long)

    if kind == "input_ids":
        inputs = {kind: tokens()}
        if config.is_encoder_decoder and "decoder_input_ids" in taken:
            inputs["decoder_input_ids"] = tokens()
        if _needs_pictures(model, taken):
            inputs["pixel_values"] = _pictures(config.vision_config, batch, notes)
        elif parts := [key for key in ("vision_config", "audio_config", "speech_config") if hasattr(config, key)]:
            notes.append(f"text alone runs: {', '.join(parts)} is in the parameters, and not in the FLOPs")
        return inputs, notes
    if kind == "pixel_values":
        inputs = {kind: _pictures(getattr(config, "vision_config", config), batch, notes)}
        frames = getattr(config, "num_frames", None)
        if frames and "video" in f"{config.model_type} {type(model).__name__}".lower():
            inputs[kind] = inputs[kind].unsqueeze(1).expand(batch, frames, *inputs[kind].shape[1:])
        if "decoder_input_ids" in taken and getattr(config, "is_encoder_decoder", False):
            inputs["decoder_input_ids"] = tokens()
        return inputs, notes
    if kind == "input_features":
        mels = getattr(config, "num_mel_bins", None) or getattr(config, "feature_projection_input_dim", None)
        if mels is None:
            raise ValueError(f"{type(model).__name__} hears features of a size that its configuration does not say")
        if "decoder_input_ids" not in taken:
            notes.append("seq counts frames of sound")
            return {kind: torch.zeros(batch, tokens().shape[1], mels, dtype=torch.bfloat16)}, notes
        frames = 2 * getattr(config, "max_source_positions", _FRAMES // 2)
        notes.append(f"the encoder hears {frames:,} frames")
        sound = torch.zeros(batch, mels, frames, dtype=torch.bfloat16)
        return {kind: sound, "decoder_input_ids": tokens()}, notes
    if kind == "input_values":
        if hasattr(config, "num_mel_bins") and hasattr(config, "max_length"):  # a picture of sound
            return {kind: torch.zeros(batch, config.max_length, config.num_mel_bins, dtype=torch.bfloat16)}, notes
        if seq is None:
            raise TypeError(f"seq= is missing, the samples of a sound for {type(model).__name__}, e.g. seq=16000")
        notes.append("seq counts samples of sound")
        return {kind: torch.zeros(batch, size("seq", seq), dtype=torch.bfloat16)}, notes
    raise ValueError(
        f"{type(model).__name__} takes {kind!r}, which flopkit makes no inputs for; build the model, and count it: "
        "fk.count(model, *inputs)"
    )


def _needs_pictures(model: Any, taken: Mapping[str, Any]) -> bool:
    """Whether a model compares text with pictures, as CLIP does, and does not run on text alone."""
    return "pixel_values" in taken and hasattr(model.config, "vision_config") and hasattr(model, "logit_scale")


def _pictures(config: Any, batch: int, notes: list[str]) -> Any:
    import torch

    sides = getattr(config, "image_size", None)
    if sides is None:
        sides = _PICTURE
        notes.append(f"its configuration does not say the size of an image: {sides} × {sides} pixels")
    height, width = sides if isinstance(sides, (tuple, list)) else (sides, sides)
    channels = getattr(config, "num_channels", None) or getattr(config, "in_channels", None) or 3
    return torch.zeros(batch, channels, height, width, dtype=torch.bfloat16)


def _check_positions(model: Any, length: int) -> None:
    """On meta nobody notices that a table of positions has no row for a token."""
    import torch

    for name, module in model.named_modules():
        part = name.rpartition(".")[2].lower()
        if isinstance(module, torch.nn.Embedding) and part in (
            "position_embeddings",
            "embed_positions",
            "wpe",
            "position_embedding",
        ):
            if "vision" in name or ("encoder.embed_positions" in name and model.main_input_name != "input_ids"):
                continue
            rows = module.num_embeddings - (getattr(module, "offset", 0) or 0)
            rows -= module.padding_idx + 1 if module.padding_idx is not None and not hasattr(module, "offset") else 0
            if length > rows:
                raise ValueError(f"seq={length}: {type(model).__name__} has learned positions for {rows:,} tokens")


def arguments_of(model: Any) -> Mapping[str, Any]:
    """The arguments of its forward pass."""
    from inspect import signature

    return signature(model.forward).parameters
