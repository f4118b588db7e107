"""What people give for a configuration: a dictionary, a file, a folder, a Hub id; and what is in it, under one name."""

from __future__ import annotations

import contextlib
import json
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from flopkit.arithmetic import brief
from flopkit.models.files import gguf, hub, params_json, recognised
from flopkit.models.model import Model
from flopkit.sizes import short

__all__ = ["Given", "configuration", "is_place"]

_IN_FOLDERS = ("config.json", "params.json", "adapter_config.json", "model_index.json")
"""What is looked for in a folder, in this order."""


@dataclass(frozen=True)
class Given:
    """A configuration, and what is known of it besides.

    Parameters
    ----------
    config : Mapping[str, Any]
        The dictionary, in the words of a ``config.json``; ``_name_or_path`` is what captions call the model.
    place : str, optional
        Where it lies, for errors; empty for a dictionary.
    notes : tuple[str, ...], optional
        What was read of it, or taken for what it does not say.
    params : int, optional
        How many numbers its file lists: what is read must have as many.
    """

    config: Mapping[str, Any]
    place: str = ""
    notes: tuple[str, ...] = ()
    params: int | None = None

    @contextlib.contextmanager
    def naming(self) -> Iterator[None]:
        """Errors about the configuration begin with its place."""
        try:
            yield
        except (ValueError, TypeError) as error:
            if self.place:
                error.args = (f"{self.place}: {error}",)
            raise

    def finished(self, model: Model) -> Model:
        """*model*, which was read from it, with its notes.

        Raises
        ------
        ValueError
            Where the file lists another number of parameters.
        """
        if self.params is not None and self.params != model.params:
            raise ValueError(
                f"{self.place}: its tensors hold {self.params:,} numbers, and a {self.config['model_type']} of these sizes "
                f"{model.params:,}: this variant is not described here"
            )
        return replace(model, notes=(*self.notes, *model.notes)) if self.notes else model


def configuration(given: Any) -> Given:
    """The configuration that *given* is, or the place of.

    Parameters
    ----------
    given : Any
        A dictionary; the path of a ``config.json``, of Meta's or Mistral's ``params.json`` or of a GGUF file; a folder with
        one of them; a Hub id, ``"org/name"``, or the address of its page.

    Returns
    -------
    Given
        A Hub id is looked up in the local cache, then on the Hub, where ``huggingface_hub`` is installed: its
        ``config.json`` alone.

    Raises
    ------
    ValueError
        For a file that is something else, with what it is and what to give instead.
    OSError
        Where there is no such file, and where the Hub does not answer.
    TypeError
        For what is neither a dictionary nor a place.

    Examples
    --------
    >>> configuration({"config": {"model_type": "llama", "hidden_size": 4096}}).config["hidden_size"]
    4096
    """
    if isinstance(given, (Mapping, list)):
        return _of_content(given, "", "")
    if not isinstance(given, (str, os.PathLike)) or isinstance(os.fspath(given), bytes):
        raise TypeError(f"config={short(given)}: must be a dictionary or the path of a config.json")
    text = str(os.fspath(given))
    if page := hub.address(text):
        return _of_hub(page)
    if "://" in text:
        raise ValueError(
            f"{text}: flopkit knows addresses of huggingface.co alone; save the config.json, and give its path"
        )
    path = Path(text)
    if _exists(path):
        return _of_file(_in_folder(path) if path.is_dir() else path)
    if hub.looks_like_id(text):
        return _of_hub(hub.Address(text))
    known = hub.catalogue_name(text)
    raise FileNotFoundError(
        f"{brief(text, 200)}: there is no such file or folder; give the path of a config.json, a Hub id (org/name), or load a model by its name: "
        f"fk.load{f'({known!r})' if known else ''}"
    )


def is_place(text: str) -> bool:
    """Whether *text* names a place of a configuration, and not a model that flopkit knows by name.

    >>> is_place("config.json"), is_place("Qwen/Qwen3-8B"), is_place("llama-3-8b")
    (True, True, False)
    """
    return text.endswith((".json", ".gguf")) or "/" in text or "\\" in text or _exists(Path(text))


def _exists(path: Path) -> bool:
    """Whether there is such a file or folder; what can be no path, too long or with a null in it, is none."""
    try:
        return path.is_file() or path.is_dir()
    except (OSError, ValueError):
        return False


def _of_hub(page: hub.Address) -> Given:
    if found := hub.cached(page):
        return _of_file(found, name=page.id)
    return _of_content(_json(hub.fetched(page), str(page)), page.id, str(page))


def _in_folder(folder: Path) -> Path:
    for name in _IN_FOLDERS:
        if (folder / name).is_file():
            return folder / name
    inside = sorted(path.name for path in folder.iterdir())
    models = [name for name in inside if name.endswith(".gguf")]
    if len(models) == 1 or (models and re.search(r"-00001-of-\d{5}\.gguf$", models[0])):
        return folder / models[0]
    commits = sorted((folder / "snapshots").iterdir()) if (folder / "snapshots").is_dir() else []
    if len(commits) == 1 and (commits[0] / "config.json").is_file():  # a model's folder in the Hub's cache
        return commits[0] / "config.json"
    listed = f"{', '.join(inside[:6])}{', …' if len(inside) > 6 else ''}" if inside else "nothing"
    which = "several GGUF files: give one of them" if models else f"no config.json; in it: {listed}"
    raise ValueError(f"{folder}: this folder has {which}")


def _of_file(path: Path, name: str = "") -> Given:
    name = name or _name(path)
    with path.open("rb") as file:
        head = file.read(16)
    if head[:4] == b"GGUF":
        config, notes, params = gguf.read(path)
        return Given({**config, "_name_or_path": name}, str(path), notes, params)
    if what := recognised.weights(head):
        raise ValueError(f"{path}: this is {what}")
    if path.suffix == ".gguf":
        raise ValueError(
            f"{path}: a GGUF file begins with the letters GGUF, this one with {head[:4]!r}: it is damaged; download it again, "
            "or give the model's config.json"
        )
    return _of_content(_json(path.read_bytes(), str(path)), name, str(path))


def _json(data: bytes, place: str) -> Any:
    """What stands in a file of UTF-8, UTF-16 or UTF-32, with a byte order mark or without."""
    try:
        return json.loads(data.decode(json.detect_encoding(data)), object_hook=_plain_float)
    except (ValueError, RecursionError) as error:
        hint = recognised.instead_of_json(data, getattr(error, "pos", 0))
        raise ValueError(f"{place}: not a JSON file: {error}{hint and f'; {hint}'}") from None


def _plain_float(found: dict[str, Any]) -> Any:
    """Infinity and its like, which transformers 5 writes as ``{"__float__": "Infinity"}``."""
    return float(found["__float__"]) if set(found) == {"__float__"} else found


def _of_content(content: Any, name: str, place: str) -> Given:
    given = Given({}, place)
    with given.naming():
        config = recognised.unwrapped(content)
        notes: tuple[str, ...] = ()
        if params_json.is_params(config):
            config, notes = params_json.as_config(config)
    said = config.get("_name_or_path")
    if place and hub.looks_like_id(name):  # what somebody typed names it best
        said = name
    elif not isinstance(said, str) or _of_a_stranger(said):
        said = name
    kept = {key: value for key, value in config.items() if key != "_name_or_path"}
    return Given(kept | ({"_name_or_path": said} if said else {}), place, notes)


def _of_a_stranger(name: str) -> bool:
    """Whether a ``_name_or_path`` is a path on the computer of whoever saved the file, or nothing."""
    return not name or name.startswith((".", "/", "~")) or "\\" in name or name.count("/") > 1


def _name(path: Path) -> str:
    """What captions call a model whose file lies here: a Hub id in the cache, else the file's name or the folder's."""
    for part in path.parts:
        if part.startswith("models--"):
            return part.removeprefix("models--").replace("--", "/")
    return path.resolve().parent.name if path.name in _IN_FOLDERS else path.stem
