"""Reading other people's files: config.json, GGUF, params.json, and where they are."""
