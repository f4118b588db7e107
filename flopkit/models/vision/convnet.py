"""A convolutional network as a model: what its passes cost, and what they keep."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, NoReturn

from flopkit.arithmetic import total
from flopkit.cost import Cost, amount
from flopkit.dtypes import DType, nbytes
from flopkit.models.display import in_a_line, model_table, no_text, summary
from flopkit.models.training.finetuning import LastLayers
from flopkit.models.training.lora import LoRA
from flopkit.models.training.recompute import Segments
from flopkit.models.vision.feature_map import FeatureMap, nested, weight_gradient
from flopkit.models.vision.networks import NETWORKS, cnn_published, through
from flopkit.names import find
from flopkit.sizes import Size, choice, short
from flopkit.tables import Table
from flopkit.training.memory import OPTIMIZERS, PRECISIONS, Memory, state_bytes
from flopkit.training.steps import POLICIES, Step

__all__ = ["ConvNet"]

CLASSES = 1000


@dataclass(frozen=True, kw_only=True, repr=False)
class ConvNet:
    """A convolutional network of torchvision, for images in three colours and 1,000
    classes. `flopkit.load` gives it: ``load("resnet50")``.

    It answers as a `Model` does, with the images of a batch, their height and their
    width in place of sequences and tokens. It makes no text, so it has no cache, and
    its layers are not equal, so nothing of it is recomputed.

    Parameters
    ----------
    name : str
        One of `cnn_names`.

    Raises
    ------
    ValueError
        For a name that is not known, with near ones.
    TypeError
        For what is no name.

    Examples
    --------
    >>> from flopkit import load
    >>> load("resnet50") == ConvNet(name="ResNet-50"), load("resnet50").params
    (True, 25557032)
    """

    name: str

    def __post_init__(self) -> None:
        object.__setattr__(self, "name", find(self.name, NETWORKS, "a known network"))

    @property
    def source(self) -> str:
        """Where the sizes were read."""
        published = cnn_published()
        return f"torchvision {published['version']}, {self.name} ({published['read']})"

    @property
    def notes(self) -> tuple[str, ...]:
        """What a reader of its configuration took for what does not stand there:
        nothing."""
        return ()

    @cached_property
    def params(self) -> Any:
        """Trainable numbers; the running statistics of norms are not trained."""
        return self.forward().params

    @property
    def active_params(self) -> Any:
        """All of them work for each image."""
        return self.params

    def trained_params(self, trained: str = "all") -> Any:
        """How many numbers a step trains that is asked for with the same *trained*, as
        in `train_step`.

        >>> from flopkit import load
        >>> load("resnet50").trained_params("head")
        2049000
        """
        self._trained(trained)
        return self.params if trained == "all" else self._pass().layers[-1].cost.params

    @property
    def kinds(self) -> dict[str, str]:
        """What each layer is, one of `KINDS`, by its name."""
        return {layer.cost.name: layer.kind for layer in self._pass().layers}

    # -- the pass ---------------------------------------------------------------------------------------------

    def forward(self, *, batch: Size = 1, height: int = 224, width: int = 224, dtype: DType = "bf16") -> Cost:
        """The forward pass over *batch* images, one part a layer, in the order in which
        they run.

        Parameters
        ----------
        batch : Size, optional
            Images.
        height, width : int, optional
            Their size in pixels.
        dtype : DType, optional
            Number format of weights and maps, for the bytes.

        Returns
        -------
        Cost
            Of the whole batch. Bytes: each operator by itself.

        Raises
        ------
        ValueError
            For an image too small for the network, with the layer that it does not fit.

        Notes
        -----
        Batch normalisation runs as in inference, as an operator of its own. Not
        counted: flattening, which moves nothing, dropout and stochastic depth.

        Examples
        --------
        >>> from flopkit import load
        >>> load("resnet50").forward().macs
        4089184256
        """
        image = self._pass(batch, height, width, dtype)
        return Cost.total(f"{self.name}, forward", (layer.cost for layer in image.layers))

    def train_step(
        self, *, batch: Size = 1, height: int = 224, width: int = 224, recompute: str = "none", dtype: DType = "bf16",
        trained: str = "all",
    ) -> Step:  # fmt: skip
        """One training step over *batch* images.

        FLOPs: forward as `forward` counts it; backward twice as much but for the first
        convolution, which comes back as one product, for the image needs no gradient.
        Forward, batch normalisation takes the statistics of the batch.
        Bytes, backward: see `cnn_backward`.

        Parameters
        ----------
        batch : Size, optional
            Images.
        height, width : int, optional
            Their size in pixels.
        recompute : str, optional
            ``"none"`` alone: there are no equal layers that could be recomputed.
        dtype : DType, optional
            Number format of weights and maps.
        trained : str, optional
            ``"all"``, or ``"head"``: the last dense layer alone, whose input then needs
            no gradient.

        Examples
        --------
        >>> from flopkit import load
        >>> step = load("resnet50").train_step(batch=64)
        >>> step.model_flops == step.hardware_flops == 64 * (6 * 4089184256 - 2 * 64 * 112**2 * 147)
        True
        """
        self._recomputed(recompute)
        self._trained(trained)
        image = self._pass(batch, height, width, dtype, training=True)
        gradients = [layer.gradient for layer in image.layers]
        if trained == "head":
            gradients = [weight_gradient(image.layers[-1].cost)]
        return Step(
            name=f"{self.name}, training step",
            tokens=None,
            images=image.batch,
            forward=Cost.total("forward", (layer.cost for layer in image.layers)),
            backward=Cost.total("backward", gradients),
            checkpointed=Cost("none"),
            scores_again=Cost("scores again"),
        )

    def train_memory(
        self, *, batch: Size = 1, height: int = 224, width: int = 224, recompute: str = "none", precision: str = "mixed",
        optimizer: str = "adam", trained: str = "all",
    ) -> Memory:  # fmt: skip
        """Memory of one training step over *batch* images on one device.

        Weights, gradients and optimiser: as in `Model.train_memory`.
        Activations: every tensor that some operator of torchvision's network keeps for
        its backward pass, once: inputs of convolutions, norms, and dense layers; mean
        and deviation of a norm in fp32; of an activation in place what it gives (ReLU)
        or what it was given (ReLU6, SiLU); of max pooling the place of each maximum in
        int64. At the ends stand the images, and the log-probabilities of the loss in
        fp32.

        Parameters
        ----------
        batch : Size, optional
            Images.
        height, width : int, optional
            Their size in pixels.
        recompute : str, optional
            As in `train_step`.
        precision, optimizer : str, optional
            As in `Model.train_memory`.
        trained : str, optional
            As in `train_step`.

        Notes
        -----
        Not counted: see `Memory`; running statistics of norms; masks of dropout and
        stochastic depth.

        Examples
        --------
        >>> from flopkit import load
        >>> load("resnet50").train_memory(batch=64)
        resnet50, training step: 3.21 GB, 2.801 GB of it activations
        """
        self._recomputed(recompute)
        self._trained(trained)
        choice("precision", precision, tuple(PRECISIONS))
        if precision == "autocast":
            raise ValueError(
                f"precision='autocast': {self.name} has convolutions, of which it is not known here; 'fp32' and 'mixed' bound it"
            )
        if precision == "fsdp":
            raise ValueError(
                f"precision='fsdp': what devices gather that divide {self.name} is not known here; take 'mixed'"
            )
        choice("optimizer", optimizer, tuple(OPTIMIZERS))
        image = self._pass(batch, height, width, "fp32" if precision == "fp32" else "bf16", training=True)
        pixels, *kept = image.kept.values()
        ends = nbytes(image.elements, "fp32")
        if trained == "all":
            ends = ends + pixels.bytes
        else:
            kept = kept[-1:]  # what the head reads
        weight, gradient, states = state_bytes(precision, optimizer)
        changed = self.trained_params(trained)
        return Memory(
            f"{self.name}, training step", weight * self.params, gradient * changed, states * changed,
            total(each.bytes for each in kept), ends, 0, tuple(kept), "the network",
        )  # fmt: skip

    def prefill(self, **sizes: Any) -> NoReturn:
        """Refused: see `Model.prefill`."""
        raise no_text(self, "prefill")

    def decode(self, **sizes: Any) -> NoReturn:
        """Refused: see `Model.decode`."""
        raise no_text(self, "decode")

    def kv_bytes(self, **sizes: Any) -> NoReturn:
        """Refused: see `Model.kv_bytes`."""
        raise no_text(self, "cache")

    def state_bytes(self, **sizes: Any) -> NoReturn:
        """Refused: see `Model.state_bytes`."""
        raise no_text(self, "cache")

    def _pass(
        self, batch: Any = 1, height: int = 224, width: int = 224, dtype: Any = "bf16", training: bool = False
    ) -> FeatureMap:
        return through(self.name, batch=batch, height=height, width=width, dtype=dtype, training=training)

    def _recomputed(self, recompute: Any) -> None:
        if isinstance(recompute, str):
            choice("recompute", recompute, tuple(POLICIES))
        if recompute != "none":
            error = ValueError if isinstance(recompute, (str, Segments)) else TypeError
            raise error(
                f"recompute={short(recompute)}: {self.name} has no equal layers that could be recomputed; leave recompute= out"
            )

    def _trained(self, trained: Any) -> None:
        if trained not in ("all", "head"):
            error = ValueError if isinstance(trained, (str, LastLayers, LoRA)) else TypeError
            raise error(f"trained={short(trained)}: of {self.name} either 'all' is trained or the 'head' alone")

    # -- showing itself ---------------------------------------------------------------------------------------

    def table(self, *, batch: Size = 1, height: int = 224, width: int = 224, dtype: DType = "bf16") -> Table:
        """The forward pass over *batch* images, one row a layer, the total last.

        Parameters
        ----------
        batch : Size, optional
            Images.
        height, width : int, optional
            Their size in pixels.
        dtype : DType, optional
            Number format of weights and maps, for the bytes.

        Returns
        -------
        Table
            As of `Model.table`. A row of a stage or a block, by its name in
            torchvision, comes before the rows of what is inside.

        Examples
        --------
        >>> from flopkit import load
        >>> rows = load("resnet50").table()
        >>> [row["part"] for row in rows if row["level"] == 0][-4:]
        ['layer4', 'avgpool', 'fc', 'total']
        >>> rows[0]["part"], rows[0]["formula"]
        ('conv1', '2·batch·12544·147·64')
        """
        image = self._pass(batch, height, width, dtype)
        images = f"{amount(image.batch)} × {amount(image.pixels[0])} × {amount(image.pixels[1])} pixels"
        return model_table(f"{self.name}, forward, {images}", nested(image.layers))

    def __str__(self) -> str:
        return self.name

    def __repr__(self) -> str:
        return in_a_line(self, self._sizes())

    def _repr_html_(self) -> str:
        return summary(self, self._sizes())._repr_html_()

    def _sizes(self) -> dict[str, str]:
        layers = sum(
            kind not in ("norm", "activation", "other") for kind in (layer.kind for layer in self._pass().layers)
        )
        return {"layers": f"{layers} with weights", "classes": amount(CLASSES)}
