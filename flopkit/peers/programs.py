"""The programs that eight tools are asked about; what they answered stands in flopkit/data/counters.toml.

``python -m flopkit.peers.programs`` asks the tools that are installed and prints the file anew, its reasons kept; what it says of later
versions is to be put there again.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

from flopkit.peers.asking import ask
from flopkit.peers.recorded import recorded, versions
from flopkit.peers.tools import TOOLS

__all__ = ["PROGRAMS", "build"]


def build(program: str) -> tuple[Any, Any, bool]:
    """The model of *program* on the CPU, its input, and whether gradients are recorded while it runs."""
    model, x = PROGRAMS[program][0]()
    return model.eval(), x, PROGRAMS[program][1]


def _vision(name: str) -> Callable[[], tuple[Any, Any]]:
    def made() -> tuple[Any, Any]:
        import torch
        from torchvision import models

        return models.get_model(name), torch.ones(1, 3, 224, 224)

    return made


def _lstm() -> tuple[Any, Any]:
    import torch

    return torch.nn.LSTM(64, 128, num_layers=2, batch_first=True), torch.ones(1, 16, 64)


def _language(kind: str) -> Callable[[], tuple[Any, Any]]:
    def made() -> tuple[Any, Any]:
        import torch

        from flopkit.peers.installed import load

        transformers = load("transformers")
        if transformers is None:
            raise ImportError("a language model needs transformers: pip install transformers")
        config = getattr(transformers, f"{kind}Config")(
            hidden_size=256,
            intermediate_size=896,
            num_hidden_layers=2,
            num_attention_heads=8,
            num_key_value_heads=2,
            vocab_size=2000,
        )
        model = getattr(transformers, f"{kind}ForCausalLM")(config)

        class Logits(torch.nn.Module):
            """Tools that trace want a tensor back."""

            def __init__(self) -> None:
                super().__init__()
                self.model = model

            def forward(self, tokens: Any) -> Any:
                return self.model(tokens).logits

        return Logits().to(torch.bfloat16), torch.arange(64).reshape(1, 64)

    return made


PROGRAMS: dict[str, tuple[Callable[[], tuple[Any, Any]], bool]] = {
    "ResNet-50": (_vision("resnet50"), True),
    "MobileNetV2": (_vision("mobilenet_v2"), True),
    "ViT-B/16": (_vision("vit_b_16"), True),
    "ViT-B/16, no gradients": (_vision("vit_b_16"), False),
    "LSTM": (_lstm, True),
    "small Llama": (_language("Llama"), True),
    "small Mixtral": (_language("Mixtral"), True),
}


def _anew() -> str:
    import torch

    from flopkit.counter.running import count
    from flopkit.peers.installed import version

    lines = ["[versions]", *(f'"{tool}" = {{ since = "{version(TOOLS[tool].package)}" }}' for tool in versions())]
    for name in PROGRAMS:
        before = recorded().get(name)
        model, x, grad = build(name)
        with contextlib.nullcontext() if grad else torch.no_grad():
            flops = count(model, x).flops
            answers = [ask(tool, model, x) for tool in versions()]
        lines += ["", f'[programs."{name}"]', f'about = "{before.about if before else ""}"', f"flops = {flops}"]
        lines += [f'printed."{a.tool}" = {a.value}' for a in answers if a.value is not None]
        lines += [f'reasons."{tool}" = "{why}"' for tool, why in (before.reasons if before else {}).items()]
    return "\n".join(lines)


if __name__ == "__main__":
    print(_anew())
