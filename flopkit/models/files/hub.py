"""The ``config.json`` of a model on the Hugging Face Hub: from the local cache, else by ``huggingface_hub``; never its weights."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any, NamedTuple

from flopkit.models.files.configs import config_names
from flopkit.names import plain

__all__ = ["Address", "address", "cached", "catalogue_name", "fetched", "looks_like_id"]

SECONDS = 10
"""How long a server may take to answer."""

_PART = r"[A-Za-z0-9][\w.-]*"
_ID = re.compile(rf"{_PART}/{_PART}")
_HOSTS = re.compile(r"(?:https?://)?(?:www\.)?(?:huggingface\.co|hf\.co)/(.*)", re.I)
_FILES = (".json", ".gguf", ".safetensors", ".bin", ".pt", ".pth", ".txt", ".yaml", ".yml", ".md", ".py")


class Address(NamedTuple):
    """A model on the Hub, and which version of it."""

    id: str
    revision: str = "main"

    def __str__(self) -> str:
        return self.id if self.revision == "main" else f"{self.id} at {self.revision}"


def looks_like_id(text: str) -> bool:
    """Whether *text* can be a Hub id, an organisation and a name.

    >>> looks_like_id("Qwen/Qwen3-8B"), looks_like_id("models/config.json"), looks_like_id("gpt2")
    (True, False, False)
    """
    return bool(_ID.fullmatch(text)) and not text.lower().endswith(_FILES)


def address(text: str) -> Address | None:
    """The model that a page of the Hub is about; None for another text.

    >>> address("https://huggingface.co/Qwen/Qwen3-8B/blob/main/config.json")
    Address(id='Qwen/Qwen3-8B', revision='main')
    """
    found = _HOSTS.fullmatch(text.strip())
    if found is None:
        return None
    parts = [part for part in re.split(r"[?#]", found[1])[0].split("/") if part]
    if len(parts) < 2 or parts[0] in ("datasets", "spaces", "docs", "papers", "blog"):
        raise ValueError(f"{text}: this page is not about one model; give org/name")
    name = "/".join(parts[:2])
    return (
        Address(name, parts[3]) if len(parts) > 3 and parts[2] in ("blob", "raw", "resolve", "tree") else Address(name)
    )


def catalogue_name(text: str) -> str:
    """The name under which flopkit knows the sizes of a model that is called otherwise on the Hub, else nothing.

    >>> catalogue_name("meta-llama/Llama-3.3-70B-Instruct"), catalogue_name("somebody/something")
    ('llama-3.3-70b', '')
    """
    name = re.sub(r"^meta-(?=llama)", "", text.rpartition("/")[2], flags=re.I)
    name = re.sub(r"(-(instruct|base|hf|it|chat|pt))+$", "", name, flags=re.I)
    return {plain(each): each for each in config_names()}.get(plain(name), "")


def cached(model: Address) -> Path | None:
    """The ``config.json`` in the local cache, which transformers and huggingface_hub fill, None where it is not there."""
    folder = _cache() / f"models--{model.id.replace('/', '--')}"
    snapshots = folder / "snapshots"
    named = folder / "refs" / model.revision
    commit = named.read_text("utf-8").strip() if named.is_file() else model.revision
    for commits in ([commit], os.listdir(snapshots) if model.revision == "main" and snapshots.is_dir() else []):
        found = [path for each in commits if (path := snapshots / each / "config.json").is_file()]
        if len(found) == 1:
            return found[0]
    return None


def _cache() -> Path:
    """Where the cache is: https://huggingface.co/docs/huggingface_hub/package_reference/environment_variables"""
    said = os.environ
    for name in ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"):
        if said.get(name):
            return Path(said[name]).expanduser()
    home = said.get("HF_HOME") or os.path.join(said.get("XDG_CACHE_HOME") or "~/.cache", "huggingface")
    return Path(home).expanduser() / "hub"


def fetched(model: Address) -> bytes:
    """What stands in the ``config.json`` of a model on the Hub: asked for once, for at most ten seconds.

    Raises
    ------
    OSError
        Where the Hub does not answer, has no such file, or asks who you are; where ``HF_HUB_OFFLINE`` forbids to ask.
    ImportError
        Without huggingface_hub.
    """
    ways = _other_ways(model)
    missing = f"{model}: no file or folder of this name, and no config.json of it in the Hub's cache {_cache()}"
    if any(
        os.environ.get(name, "").upper() in ("1", "ON", "YES", "TRUE")
        for name in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE")
    ):
        raise FileNotFoundError(f"{missing}; HF_HUB_OFFLINE forbids to ask the Hub. {ways}")
    try:
        from huggingface_hub import utils
    except ImportError:
        raise ImportError(f"{missing}; to ask the Hub: pip install huggingface_hub. {ways}") from None
    asked: Any = utils
    end = (os.environ.get("HF_ENDPOINT") or "https://huggingface.co").rstrip("/")
    url = f"{end}/{model.id}/resolve/{model.revision}/config.json"
    try:
        answer: Any = asked.get_session().get(url, headers=asked.build_hf_headers(), timeout=SECONDS)
        status, body = answer.status_code, answer.content
    except Exception as error:  # each version of huggingface_hub has another library below, with errors of its own
        said = " ".join(str(error).split()) or type(error).__name__
        raise ConnectionError(f"{missing}; the Hub did not answer ({end}: {said}). {ways}") from None
    if status == 200:
        return bytes(body)
    why = {
        401: "it asks who you are, or has no such model: check the name, accept the model's terms, run `hf auth login`",
        403: "it does not let you in: accept the model's terms on its page, run `hf auth login`",
        404: "it has no such model, or the model has no config.json",
    }.get(status, "try again later")
    raise FileNotFoundError(f"{missing}; the Hub answered {status}: {why}. {ways}")


def _other_ways(model: Address) -> str:
    known = catalogue_name(model.id)
    name = f"Its sizes are known here by name: {known}. " if known else ""
    return f"{name}Or save its config.json, and give the path: {model.id} has it under Files"
