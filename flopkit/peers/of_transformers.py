"""`count_hf`: a configuration without a closed form, counted by building transformers' own class on the meta device."""

from __future__ import annotations

import contextlib
import traceback
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from flopkit.counter.report import Report
from flopkit.counter.running import count
from flopkit.models.files.config_files import Given, configuration
from flopkit.models.files.misnamed import SAME_SIZE
from flopkit.models.files.unknown_types import BESIDE
from flopkit.peers.inputs_of_transformers import arguments_of, inputs_of
from flopkit.sizes import Size, flag, short, size

__all__ = ["Built", "built", "count_hf"]

_WITH_WORDS = ("ForCausalLM", "LMHeadModel", "ForConditionalGeneration")
_OUT = (
    "past_key_values",
    "hidden_states",
    "attentions",
    "decoder_hidden_states",
    "encoder_last_hidden_state",
    "cross_attentions",
)


def count_hf(config: Any, *, seq: Size | None = None, batch: Size = 1, train: bool = False) -> Report:
    """Count what transformers' own class does, built on the meta device from a ``config.json``.

    For models that `flopkit.from_hf` does not describe. The class is the one that ``architectures`` names, else the one that
    transformers has for the ``model_type``, with a head for words or classes where there is one. Nothing is computed and no weights are read:
    a model of any size needs little memory.

    Parameters
    ----------
    config : Any
        What `flopkit.from_hf` takes: a dictionary, a path, a folder, a Hub id.
    seq : Size, optional
        Tokens of a sequence; of an encoder-decoder, in each of the two (a model of speech hears sound of its own length); of a
        model of bare sound, samples. A model of images knows the size of its images.
    batch : Size, optional
        Sequences, images or sounds.
    train : bool, optional
        Forward and backward: of the sum of all results, as of a loss. Without dropout and layer drop; without an optimiser.

    Returns
    -------
    Report
        Under TORCH, with weights and activations in bf16. `Report.notes` has the class, its parameters (tied ones once), and
        what the inputs leave out.

    Raises
    ------
    ValueError
        For a ``model_type`` that transformers does not have, for a model that only code of its repository builds, which is
        not run, for a sequence that is longer than a table of positions, and for a model that asks for values, which
        tensors on meta do not have.
    TypeError
        Without *seq*, where the model needs it.
    ImportError
        Without torch or transformers.

    Notes
    -----
    Not counted: pictures and sounds of a model of text and more (it gets text alone, and says so); for quantised files, the
    work to unpack weights; the loss itself.
    Mixtures of experts run as grouped products where transformers offers them.

    Examples
    --------
    >>> from flopkit.models import hf_config
    >>> small = hf_config("gpt2") | {"n_layer": 2}
    >>> count_hf(small, seq=128).forward.flops
    13605470208
    """
    return built(config).count(seq=seq, batch=batch, train=train)


@dataclass(frozen=True)
class Built:
    """A model of transformers on the meta device, and what was read of its file."""

    given: Given
    model: Any
    notes: tuple[str, ...]

    @property
    def name(self) -> str:
        """What captions call it."""
        return str(self.given.config.get("_name_or_path") or self.model.config.model_type)

    @property
    def params(self) -> int:
        """Trainable numbers, tied ones once."""
        return sum(each.numel() for each in self.model.parameters())

    @property
    def made_by(self) -> str:
        """The class, and whose it is."""
        import transformers

        return f"{type(self.model).__name__} of transformers {transformers.__version__}"

    def count(self, *, seq: Size | None = None, batch: Size = 1, train: bool = False) -> Report:
        """`count_hf` of it."""
        import torch
        from torch._subclasses.fake_tensor import FakeTensorMode

        train, batch = bool(flag("train", train)), size("batch", batch)
        first: Exception | None = None
        for where, place in (("meta", torch.device("meta")), ("fake tensors", FakeTensorMode())):
            with _quiet(), place:
                try:
                    model = self.model if where == "meta" else _made(type(self.model), self.model.config)
                except Exception as error:  # BLIP asks for values while it is built
                    first = first or error
                    continue
                with self.given.naming():
                    inputs, notes = inputs_of(model, seq, batch)
                try:
                    report = _counted(model, inputs, train, cached=where == "meta")
                except Exception as error:  # some ask for values, which fake tensors may not have to give
                    first = first or error
                    continue
            backward = ["backward of the sum of all results, without dropout"] if train else []
            params = f"{self.made_by}, on {where} in bf16: {self.params:,} parameters"
            for note in (*self.notes, *notes, *_idle(model, inputs, report), *backward, params):
                report.add_note(note)
            return report
        assert first is not None
        raise ValueError(
            f"{self._place()}{self.made_by} does not run without values, with the inputs that flopkit makes for it: {_said(first)}; "
            "build it, and count it with your own: fk.count(model, *inputs)"
        ) from first

    def _place(self) -> str:
        return f"{self.given.place}: " if self.given.place else ""


def built(config: Any) -> Built:
    """The model of a configuration, as `count_hf` builds it."""
    try:
        import torch
        import transformers
    except ImportError as error:
        raise ImportError(
            f"counting a model of transformers needs torch and transformers, and {error.name} is not installed: "
            "pip install torch transformers"
        ) from None
    given = configuration(config)
    with given.naming(), _quiet():
        fields = {key: value for key, value in given.config.items() if key != "_name_or_path"}
        notes = list(given.notes)
        if fields.pop("quantization_config", None) is not None:
            notes.append("quantization_config: counted as if its weights were bf16")
        made, notes_of_class = _class(transformers, fields)
        notes += notes_of_class
        try:
            read = made.config_class.from_dict(fields)
        except Exception as error:  # strict checks of transformers, each with an error of its own
            raise ValueError(
                f"transformers {transformers.__version__} does not read this configuration: {_said(error)}"
            ) from error
        _sizes_as_said(fields, read)
        try:
            with torch.device("meta"):
                model = _made(made, read)
        except Exception as error:  # whatever a class makes of a value that it does not expect
            raise ValueError(
                f"{made.__name__} of transformers {transformers.__version__} cannot be built of this configuration: {_said(error)}"
            ) from error
    return Built(given, model, tuple(notes))


def _sizes_as_said(fields: Mapping[str, Any], read: Any) -> None:
    """Refuse a size under a name that the configuration class does not know, where it holds another one: it took a default."""
    try:
        classes = {id(each): each for each in (read, read.get_text_config())}.values()
        known = [(vars(each), {*vars(type(each)()), *each.attribute_map}) for each in classes]
    except ValueError:  # a model of two others, which has no sizes of its own
        return
    for words in SAME_SIZE:
        held = {
            values[word]: word
            for values, names in known
            for word in words
            if word in names and isinstance(values.get(word), int)
        }
        for word in words:
            said = fields.get(word)
            if held and isinstance(said, int) and said not in held and not any(word in names for _, names in known[:1]):
                value, key = next(iter(held.items()))
                raise ValueError(
                    f"{word}={said} stands here, which is no key of a {read.model_type} for transformers, and it takes {key}={value}: call it {key}"
                    f"{', in its text_config' if key not in known[0][1] else ''}"
                )


def _made(of: Any, config: Any) -> Any:
    """A model of a class, on the device of the context."""
    import torch

    with _progress(of.__name__):
        return of._from_config(config, dtype=torch.bfloat16).eval()


def _counted(model: Any, inputs: Mapping[str, Any], train: bool, cached: bool) -> Report:
    """A pass of a model, and back where it trains.

    Without a cache transformers looks for several texts in a row of positions, which asks for values on meta.
    """
    import torch

    how = {"use_cache": False} if not cached and "use_cache" in arguments_of(model) else {}

    def run() -> None:
        with torch.set_grad_enabled(train):
            results = model(**inputs, **how)
            if train:
                _total(results).backward()

    run.__name__ = type(model).__name__
    try:
        return count(run)
    finally:
        model.zero_grad()


def _class(transformers: Any, fields: Mapping[str, Any]) -> tuple[Any, list[str]]:
    """The class of a configuration, and what there is to say of the choice."""
    from transformers.models.auto import modeling_auto as auto

    kind, listed, version = fields.get("model_type"), fields.get("architectures") or [], transformers.__version__
    named = listed[0] if isinstance(listed, list) and listed and isinstance(listed[0], str) else ""
    own = f"the file names code of its own (auto_map), which is not run; {{}} of transformers {version} is counted"
    if found := getattr(transformers, named, None) if named.isidentifier() else None:
        if not (isinstance(found, type) and hasattr(found, "_from_config")):
            raise ValueError(f"architectures={short(listed)}: {named} of transformers {version} is no model of torch")
        takes = getattr(getattr(found, "config_class", None), "model_type", None)
        if kind is not None and takes != kind:
            raise ValueError(
                f"the file contradicts itself: model_type={short(kind)}, and architectures={short(listed)} takes {takes!r}"
            )
        chosen: Any = found
        return chosen, [own.format(named)] if fields.get("auto_map") else []
    if fields.get("auto_map"):
        raise ValueError(
            f"model_type={short(kind)}, architectures={short(listed)}: only code of its repository (auto_map) builds this model, "
            f"and flopkit runs none; build it yourself, and count it: fk.count(model, *inputs)"
        )
    if not isinstance(kind, str):
        raise ValueError(
            "the configuration has neither a 'model_type' nor 'architectures' that transformers has: write it in"
        )
    if kind not in transformers.CONFIG_MAPPING:
        raise ValueError(
            f"model_type={short(kind)} is not known to transformers {version}: a newer one may know it; {BESIDE}"
        )
    both = (auto.MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES, auto.MODEL_FOR_SPEECH_SEQ_2_SEQ_MAPPING_NAMES)
    with_heads = (  # a decoder that could run by itself comes after the pair, and after an encoder's own head
        *(both if fields.get("is_encoder_decoder", transformers.CONFIG_MAPPING[kind]().is_encoder_decoder) else ()),
        auto.MODEL_FOR_MASKED_LM_MAPPING_NAMES, auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES,
        auto.MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES, auto.MODEL_FOR_ZERO_SHOT_IMAGE_CLASSIFICATION_MAPPING_NAMES,
        auto.MODEL_FOR_IMAGE_CLASSIFICATION_MAPPING_NAMES,
    )  # fmt: skip
    if named and not named.endswith((*_WITH_WORDS, "Model")):
        raise ValueError(f"architectures={short(listed)}: transformers {version} has no such class")
    bare = named.endswith("Model") and not named.endswith(_WITH_WORDS)
    for names in (auto.MODEL_MAPPING_NAMES,) if bare else (*with_heads, auto.MODEL_MAPPING_NAMES):
        if name := names.get(kind):
            name = name if isinstance(name, str) else name[0]
            why = (
                f"architectures={short(listed)}: transformers {version} has no such class"
                if named
                else "architectures is missing"
            )
            return getattr(transformers, name), [f"{why}: {name} is counted"]
    raise ValueError(
        f"model_type={short(kind)}: transformers {version} has no model of it to build; name it in architectures"
    )


def _idle(model: Any, inputs: Mapping[str, Any], report: Report) -> list[str]:
    """A note where a class runs all experts on each token, and multiplies most of the results by zero."""
    rows = {row["module"]: row["forward"] for row in report.by_module()}
    for name, part in model.named_modules():
        if name.endswith(".experts") and rows.get(name) and "input_ids" in inputs:
            held = sum(each.numel() for each in part.parameters() if each.dim() > 2)
            if rows[name] >= 2 * held * inputs["input_ids"].numel():
                return ["this class runs every expert on every token: a program that chooses experts does less"]
    return []


def _total(results: Any) -> Any:
    """The sum of all results, which stands for a loss."""
    import torch

    found = [
        value.float().sum()
        for name, value in results.items()
        if name not in _OUT and isinstance(value, torch.Tensor) and value.is_floating_point() and value.requires_grad
    ]
    if not found:
        raise ValueError("none of its results leads back to its weights")
    return sum(found)


def _said(error: BaseException) -> str:
    """An error in one line, with the line of code where it came from."""
    text = " ".join(str(error).split()) or type(error).__name__
    lines = [
        each for each in traceback.extract_tb(error.__traceback__) if "transformers" in each.filename and each.line
    ]
    where = lines[-1] if lines else None
    text = text if len(text) <= 300 else f"{text[:297]}..."
    return f"{text} (in {where.name}: {where.line})" if where else text


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Without transformers' advice about kernels, which does not matter on meta; its own setting comes back."""
    from transformers import utils

    logging: Any = utils.logging
    before = logging.get_verbosity()
    logging.set_verbosity_error()
    try:
        yield
    finally:
        logging.set_verbosity(before)


@contextlib.contextmanager
def _progress(name: str) -> Iterator[None]:
    """A bar that appears when building takes longer than two seconds."""
    from torch.nn.modules.module import register_module_module_registration_hook
    from tqdm.auto import tqdm

    with tqdm(desc=f"building {name}", unit=" modules", delay=2, leave=False, disable=None) as bar:
        handle = register_module_module_registration_hook(lambda *_: bar.update(1) and None)
        try:
            yield
        finally:
            handle.remove()
