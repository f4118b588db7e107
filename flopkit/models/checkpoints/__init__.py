"""In which formats the weights of a file are: as llama.cpp mixes them, as a quantization_config says; and the bytes of it all."""
