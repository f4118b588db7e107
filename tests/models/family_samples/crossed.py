"""Llama 3.2 Vision, its part for text."""

from family_samples.sizes import DECODER

SMALL = {"mllama_text_model": DECODER | {"num_hidden_layers": 5, "cross_attention_layers": [1, 3]}}

CLASSES = {"mllama_text_model": "MllamaForCausalLM"}

NOT_BY_LAYER = {"mllama_text_model": "layers of cross-attention, which run beside an image alone, are no layers here"}
