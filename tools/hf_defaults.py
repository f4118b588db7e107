"""Write flopkit/data/hf_defaults.json anew: what transformers takes for a key that a config.json leaves out, and its classes' names.

Only types that flopkit describes are kept. Run it after a family is added: python tools/hf_defaults.py
"""

from __future__ import annotations

import dataclasses
import json
import sys
from pathlib import Path
from typing import Any

DATA = Path(__file__).parents[1] / "flopkit" / "data" / "hf_defaults.json"
NO_SIZE = (
    "dropout", "_pdrop", "token_id", "_eps", "epsilon", "init", "_coef", "loss", "output_", "summary_", "cache", "version", "architectures",
    "return_dict", "chunk_size_feed_forward", "problem_type", "label2id", "pretraining_tp", "mask_time", "mask_feature", "dtype",
)  # fmt: skip
SUFFIXES = (
    "ForCausalLM", "LMHeadModel", "ForMaskedLM", "ForConditionalGeneration", "ForPreTraining", "ForSequenceClassification",
    "ForImageClassification", "ForTokenClassification", "ForQuestionAnswering", "ForMultipleChoice", "TextModel", "VisionModel", "Model",
)  # fmt: skip


def main() -> None:
    import transformers
    from transformers.models.auto import configuration_auto, modeling_auto

    found: dict[str, Any] = {}
    mappings = [value for name, value in vars(modeling_auto).items() if name.endswith("_MAPPING_NAMES")]
    for kind in sorted(_kinds(configuration_auto)):
        config = transformers.CONFIG_MAPPING[kind]
        if not dataclasses.is_dataclass(config):
            continue
        keys = {field.name: field.default for field in dataclasses.fields(config) if _is_size(field)}
        names = [mapping.get(kind, ()) for mapping in mappings]
        classes = {each for name in names for each in ([name] if isinstance(name, str) else name) if each}
        prefixes = sorted({prefix for each in classes if (prefix := _prefix(each))})
        found[kind] = {"classes": prefixes, "keys": keys}
    rows = (f"  {json.dumps(kind)}: {json.dumps(entry)}" for kind, entry in found.items())
    head = f'{{\n "source": "transformers {transformers.__version__}, the fields of its configuration classes",\n "types": {{\n'
    DATA.write_text(head + ",\n".join(rows) + "\n }\n}\n", "utf-8")
    print(f"{DATA}: {len(found)} types, {DATA.stat().st_size:,} bytes")


def _kinds(auto: Any) -> set[str]:
    if "--all" in sys.argv:
        return set(auto.CONFIG_MAPPING_NAMES)
    from flopkit.models.architectures import ARCHITECTURES, SAME

    return {*ARCHITECTURES, *SAME} & set(auto.CONFIG_MAPPING_NAMES)


def _is_size(field: Any) -> bool:
    whole = isinstance(field.default, int | str) or (isinstance(field.default, float) and "factor" in field.name)
    return whole and not any(word in field.name for word in NO_SIZE)


def _prefix(name: str) -> str:
    return next((name.removesuffix(suffix) for suffix in SUFFIXES if name.endswith(suffix)), "")


if __name__ == "__main__":
    main()
