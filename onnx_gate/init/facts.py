"""What is known of a model before and after its ``forward`` was tried; plain data, without torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from onnx_gate.manifest.dimensions import names_of, size_of

Bound = int | float | str


@dataclass(frozen=True)
class Declared:
    """What an annotation such as jaxtyping's says of a tensor.

    ``dtypes`` are those that it allows, ``dims`` the dimensions in its own notation: ``batch 3 h w``.
    """

    dtypes: tuple[str, ...]
    dims: str


@dataclass(frozen=True)
class Parameter:
    """A parameter of ``forward``; ``annotation`` is its text, empty where there is none."""

    name: str
    required: bool
    annotation: str = ""
    declared: Declared | None = None


@dataclass(frozen=True)
class Layer:
    """A layer that says what it takes.

    ``size`` is what its first argument needs: ``in_features``, ``in_channels``, ``num_embeddings``
    (the largest index plus one), ``input_size`` or ``embed_dim``. ``direct`` is false where an
    input reaches it in another shape than it was given in. ``state`` is how many states a recurrent
    layer begins with, one for each layer and direction, and their width.
    """

    path: str
    kind: str
    size: int
    stride: int = 1
    batch_first: bool = True
    direct: bool = True
    state: tuple[int, int] | None = None


@dataclass(frozen=True)
class Facts:
    """What can be seen of a module without calling it.

    ``layers`` are in the order of registration, ``uses`` those that each parameter reaches first,
    as far as the code could be followed. ``config`` has the plain values of a library's config
    object, ``image`` is (channels, height, width) where the module says so itself.
    """

    name: str
    parameters: tuple[Parameter, ...]
    layers: tuple[Layer, ...] = ()
    uses: Mapping[str, tuple[Layer, ...]] = field(default_factory=dict)
    config: Mapping[str, Any] = field(default_factory=dict)
    main_input: str | None = None
    image: tuple[int, int, int] | None = None

    @property
    def has_sequence(self) -> bool:
        """Whether a layer works along positions."""
        words = ("LSTM", "GRU", "RNN", "MultiheadAttention", "Transformer")
        return any(layer.kind.startswith(words) for layer in self.layers)


@dataclass(frozen=True)
class Guess:
    """What one input may be; ``why`` says where that comes from."""

    dtype: str
    shape: tuple[int | str, ...]
    range: tuple[Bound, Bound] | None = None
    why: str = ""

    def fixed(self, sizes: Mapping[str, int]) -> Guess:
        """Return the same with some of its dynamic dimensions at one size."""

        def at(dim: Any) -> Any:
            names = names_of(dim) if isinstance(dim, str) else ()
            return size_of(dim, sizes) if names and set(names) <= sizes.keys() else dim

        within = None if self.range is None else (at(self.range[0]), at(self.range[1]))
        return replace(self, shape=tuple(map(at, self.shape)), range=within)


@dataclass(frozen=True)
class Attempt:
    """Arguments to try: a guess for each input, and a size for each name in their shapes."""

    guesses: Mapping[str, Guess]
    sizes: Mapping[str, int]


@dataclass(frozen=True)
class Note:
    """A sentence about the manifest: what was learned, guessed, or could not be known."""

    kind: Literal["learned", "guessed", "unknown"]
    text: str


@dataclass(frozen=True)
class Learned:
    """What the manifest's entry is made of.

    ``dims`` has the sizes of the dynamic dimensions that the gate's own do not fit. ``factory`` is
    the source of a file that builds the model, ``kwargs`` what its class is called with, ``call``
    the arguments of ``forward`` that are no tensors.
    ``packages`` are the libraries that its modules come from. ``recorded`` names the stored calls.
    """

    name: str
    inputs: Mapping[str, Guess]
    dims: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    call: Mapping[str, Any] = field(default_factory=dict)
    factory: str | None = None
    packages: tuple[str, ...] = ()
    notes: tuple[Note, ...] = ()
    tries: int = 0
    recorded: tuple[str, ...] = ()

    def fixed(self, sizes: Mapping[str, int]) -> Learned:
        """Return the same with some of its dynamic dimensions at one size."""
        return replace(
            self,
            inputs={name: guess.fixed(sizes) for name, guess in self.inputs.items()},
            dims={name: own for name, own in self.dims.items() if name not in sizes},
        )
