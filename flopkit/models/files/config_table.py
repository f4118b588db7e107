"""What `from_hf` reads from a ``config.json``, as data: a page without Python fills in a form of a transformer's numbers from it.

The readers of `flopkit.models.architectures` run here on a configuration that has no values and notes which keys they ask for. A value is then

    4096, true, "RMSNorm"                 what a family always has
    {"keys": [...], "else": value}        the first of these keys that is there and not null; without "else" it must be there
    {…, "missing": value}                 and this where none of the keys is there, not even as null
    {…, "most": number}                   and more is refused; a number of a configuration is whole and at least 1,
    {…, "one": true}                      and several keys with different numbers are refused
    {…, "strange": [...]}                 and another number than "missing" under one of these keys, where no other has one
    {…, "zero": true}                     or at least 0
    {"flag": value}                       whether it is true
    {"times" | "less" | "over": [a, b]}   a product, a difference, a quotient without remainder
    {"least": [a, b]}, {"now": control}   the smaller of two; what a control of the form says at the moment
    {"if": a, "then": b, "or": c}         b where a is true (a number other than 0, too), else c
    {"multiples": n, "upto": a, "from": b, "not": list}    how many i of b ≤ i < a have i + 1 divisible by n and are not in a list; none where n is 0
    {"listed": keys, "as": word, "of": a, "known": words, "else": value}    how often a word stands in a list of a entries
    {"said": keys, "as": {word: option}, "or": option, "else": word}    what a word stands for
    {"there": key}                        whether a key is there, even with null
    {"must": keys, "is": value}           that value, and an error where another stands there

and besides, ``own`` has which names of a size the family takes a default for, ``classes`` how the names of its classes begin, ``needed`` has values that must be there, and lists of keys of which one must be, and ``refused`` lists what a
family may say that is not described: ``{"keys": [...], "else": value, "only": values}``, with ``"narrow": true`` where Python reads other values, too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import copy
from typing import Any

from flopkit.models.architectures import FORMS, SAME
from flopkit.models.architectures.classes import beginnings
from flopkit.models.files.config_fields import (
    ACT_KEYS,
    ACTS,
    KEYS,
    MOST_LAYERS,
    ONE,
    WHOLE,
    WINDOWED,
    Fields,
    T,
    left_out,
)
from flopkit.models.files.misnamed import SAME_SIZE
from flopkit.models.transformer import WindowedLayers

__all__ = ["Value", "reader_table", "when"]


class Value:
    """A number that a configuration will hold: how to find it, as data."""

    def __init__(self, **data: Any) -> None:
        self.data = {key.rstrip("_"): _data(value) for key, value in data.items()}

    def __mul__(self, other: Any) -> Value:
        return Value(times=[self, other])

    __rmul__ = __mul__

    def __add__(self, other: int) -> Value:
        return Value(less=[self, -other])

    def __sub__(self, other: Any) -> Value:
        return Value(less=[self, other])

    def __truediv__(self, other: Any) -> Value:
        return Value(over=[self, other])

    def named(self, options: Callable[[str], str]) -> Value:
        """The same, with the options of a control for the words that it may come to."""
        return Value(**_named(self.data, options))

    def __bool__(self) -> bool:
        raise TypeError(f"{self.data}: a reader of configurations does not branch on what it reads; ask Fields")


class Asked(Fields):
    """A configuration without values, which notes what is asked of it."""

    def __init__(self, kind: str) -> None:
        super().__init__({}, kind)
        self.refused: list[dict[str, Any]] = []
        self.must_say: list[Any] = []
        self.left_out = left_out(kind, SAME.get(kind, ""))
        self.older: Mapping[str, str] = {}

    def get(self, key: str, default: Any = None) -> Any:
        none = 0 if default is None else default  # in a form 0 is none
        return Value(keys=self._all(key), **self._missing(key), else_=none)

    def count(self, key: str, default: Any, minimum: int = 1) -> Any:
        return Value(keys=self._all(key), **self._missing(key), **_zero(minimum), else_=default)

    def renamed(self, **names: str) -> Asked:
        found = copy(self)
        found.older = {**self.older, **names}
        return found

    def written(self, *keys: str | tuple[str, ...]) -> None:
        self.left_out = {}
        self.must_say += [[each] if isinstance(each, str) else [*each] for each in keys]

    def needed(self, key: str) -> Any:
        return Value(flag=Value(keys=self._all(key)))

    def demand(self, name: str) -> None:
        self.must_say.append(self.need(name).data)

    def half(self, number: Any) -> Any:
        return number / 2

    def either(self, test: Any, then: Callable[[], Any], otherwise: Callable[[], Any]) -> Any:
        return when(test, then(), otherwise())

    def there(self, key: str) -> Any:
        return Value(there=key)

    def unasked(self, find: Callable[[], T]) -> Any:
        return None

    def fixed(self, key: str, usual: Any) -> Any:
        self.refused.append({**self._only(key, usual), "narrow": True})
        return usual

    def must(self, key: str, right: Any, why: str = "") -> Any:
        return Value(must=self._all(key), **self._missing(key), is_=right)

    def head_dim(self, key: str = "head_dim") -> Any:
        rule = self.need("d_model") / self.need("heads")
        return self.get(key, rule) if key else rule

    def rotary(self, usual: float = 1.0) -> Any:
        """None: a form does not ask for it."""
        return None

    def turned(self, key: str, usual: Any = None) -> Any:
        """None: a form does not ask for it."""
        return None

    def made(self, kind: type[T], **numbers: Any) -> T:
        """The same, unchecked, for nothing has a value yet."""
        found = object.__new__(kind)
        vars(found).update(numbers)
        return found

    def listed(self, key: str) -> Any:
        return self.get(key, [])

    def need(self, name: str, minimum: int = 1) -> Any:
        keys = KEYS.get(name, (name,))
        most = ({"most": MOST_LAYERS} if name == "layers" else {}) | (
            {"one": True} if name in ONE and len(keys) > 1 else {}
        )
        odd = (
            {"strange": strange}
            if (strange := [key for key in self.strange(name) if key not in self.older.values()])
            else {}
        )
        return Value(keys=self._all(*keys), **self._missing(*keys), **most, **odd, **_zero(minimum))

    def _all(self, *keys: str) -> list[str]:
        """The same keys, each after its older name."""
        return [each for key in keys for each in (*([self.older[key]] if key in self.older else []), key)]

    def _missing(self, *keys: str) -> dict[str, Any]:
        taken = [value for key, value in self.left_out.items() if key in keys]
        return {"missing": taken[0]} if taken else {}

    def _only(self, key: str, usual: Any) -> dict[str, Any]:
        return {"keys": self._all(key), "else": _data(self._missing(key).get("missing", usual)), "only": [_data(usual)]}

    def flag(self, key: str, default: bool = False) -> Any:
        return Value(flag=self.get(key, default))

    def windows(
        self, *, every: int = 0, every_key: tuple[str, ...] = (), first: str = "", switch: str = "", listed: bool = False,
        uniform: bool = False, rotary: Any = None,
    ) -> dict[str, Any]:  # fmt: skip
        layers = self.need("layers")
        start = Value(least=[self.need(first, minimum=0), layers]) if first else 0
        period = Value(keys=list(every_key), else_=every) if every_key else every
        whole = Value(multiples=period, upto=layers, from_=start, not_=[])
        usual = self.need("layer_types") if listed else layers - start - whole
        known = [WINDOWED] if uniform else [WINDOWED, WHOLE]
        there = Value(listed=["layer_types"], as_=WINDOWED, of=layers, known=known, else_=usual)
        nowhere = Value(listed=["layer_types"], as_=WINDOWED, of=layers, known=[WHOLE], else_=0)
        window = self.get("sliding_window", 0)
        wide = when(self.flag(switch), window, 0) if switch else window
        return {"window": self.made(WindowedLayers, width=wide, layers=when(wide, there, nowhere))}

    def crossed(self, **windows: Any) -> dict[str, Any]:
        return self.windows(**windows) | self.sparse()

    def sparse(self) -> dict[str, Any]:
        layers, only, step = self.need("layers"), self.listed("mlp_only_layers"), self.get("decoder_sparse_step", 1)
        return {"dense": layers - Value(multiples=step, upto=layers, from_=0, not_=only)}

    def dense_first(self) -> dict[str, Any]:
        return {"dense": self.need("dense", minimum=0)}

    def act(self, default: str = "silu", *named: str) -> Any:
        keys = self._all(*(named or ACT_KEYS))
        usual = self._missing(*keys).get("missing", default)
        self.refused.append({"keys": keys, "else": usual, "only": [*ACTS]})
        return Value(said=keys, else_=usual, as_={word: act for word, act in ACTS.items() if act == "relu"}, or_="gelu")

    def refuse(self, **usual: Any) -> None:
        self.refused += [self._only(key, value) for key, value in usual.items()]


def _zero(minimum: int) -> dict[str, Any]:
    return {} if minimum else {"zero": True}


def when(test: Any, then: Any, otherwise: Any) -> Any:
    """*then* where *test* is true, in both readings."""
    return Value(if_=test, then=then, or_=otherwise) if isinstance(test, Value) else then if test else otherwise


def reader_table(settings: Callable[[Mapping[str, Any]], Mapping[str, Any]]) -> dict[str, Any]:
    """The table for a form: for each ``model_type``, where its settings stand in a ``config.json``.

    *settings* makes the form's settings of the numbers that a reader gives to `flopkit.models.transformer`.

    >>> table = reader_table(lambda numbers: {"width": numbers["d_model"], "heads": numbers["attention"].heads})
    >>> width = table["llama"]["set"]["width"]
    >>> width["keys"], width["missing"]
    (['hidden_size', 'n_embd', 'd_model'], 4096)
    """
    table = {}
    for kind in (*FORMS, *(other for other, family in SAME.items() if family in FORMS)):
        numbers = FORMS[SAME.get(kind, kind)]
        asked = Asked(kind)
        found = {name: _data(value) for name, value in settings(numbers(asked)).items()}
        refused = [each for place, each in enumerate(asked.refused) if each not in asked.refused[:place]]
        own = [word for words in SAME_SIZE for word in words if word in asked.left_out]
        table[kind] = {
            "set": found,
            "refused": refused,
            "classes": [*beginnings(kind)],
            "needed": asked.must_say,
            "own": own,
        }
    return table


def _data(value: Any) -> Any:
    if isinstance(value, Value):
        return value.data
    return [_data(each) for each in value] if isinstance(value, (list, tuple)) else value


def _named(data: Any, options: Callable[[str], str]) -> Any:
    if isinstance(data, str):
        return options(data)
    if "as" in data:
        return data | {"as": {word: options(said) for word, said in data["as"].items()}, "or": options(data["or"])}
    return data | {key: _named(data[key], options) for key in ("then", "or")}
