"""By which names people and drivers call devices, which one a name means, and what to type for a name that is no card's."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from typing import Any

from flopkit import names
from flopkit.device_data import aliases, entries, kin, printed

__all__ = ["find", "key", "near"]

# Makers and brands that may stand in front of a name, and whose they are.
_MAKERS = {"nvidia": "NVIDIA", "amd": "AMD", "google": "Google", "intel": "Intel", "habana": "Intel", "aws": "AWS", "huawei": "Huawei",
           "apple": "Apple", "moorethreads": "Moore Threads"}  # fmt: skip
_BRANDS = {"tesla": "NVIDIA", "geforce": "NVIDIA", "radeon": "AMD", "instinct": "AMD", "cloud": "Google"}
_SAID = _MAKERS | _BRANDS | {"quadro": "NVIDIA"}  # a Quadro RTX 6000 is no RTX 6000, so its brand stays


def key(name: str) -> str:
    """A name without what names leave out: case, spaces, punctuation, maker and brand.

    >>> key("NVIDIA GeForce RTX 4090"), key("Intel(R) Arc(TM) Pro B60 Graphics")
    ('rtx4090', 'arcprob60graphics')
    """
    bare = re.sub(r"\((?:r|tm)\)|[®™]", "", names.plain(name))
    return re.sub(rf"^({'|'.join(_MAKERS)})?({'|'.join(_BRANDS)})*(?=.)", "", bare)


@cache
def _meant() -> Mapping[str, str]:
    """The device of every key; what a driver prints with its maker's name in front, whole."""
    spelled = {key(one): name for one, name in (*((name, name) for name in entries()), *aliases().items())}
    whole = {names.plain(one): name for one, name in printed().items()}
    return spelled | {one: name for one, name in whole.items() if one not in spelled}


def find(name: Any) -> str:
    """The device that *name* is a spelling of.

    Raises
    ------
    ValueError
        For one that is not in the data, with near names of the same class only, and with
        the line that makes such a device; for one that is two devices by its case or its
        blanks, as "tpu v3" is.
    TypeError
        For what is no text.

    Examples
    --------
    >>> find("Tesla V100-PCIE-16GB"), find("AMD Instinct MI250X"), find("mi250x")
    ('v100-pcie-16gb', 'mi250x-gcd', 'mi250x')
    """
    if not isinstance(name, str):
        raise TypeError(f"name={name!r} is not a device in the data: must be a name, such as {next(iter(entries()))!r}")
    if both := _two(name):
        raise ValueError(
            f"name={name!r} is {both[0]} to its driver, letter for letter, and {both[1]} else; write {_or(list(both))}"
        )
    if known := _known(name):
        return known
    if (other := names.elsewhere(name)) and "fk.device" not in other:
        raise ValueError(f"name={name!r} is not a device in the data; here it is {other}")
    close = [] if (told := _told(name) or _of_another_maker(name)) else near(name)
    told = told or ("" if close else _other_memory(name) or _kin_of(name))
    did_you = f"; did you mean {_or(close)}?" if close else ";"
    raise ValueError(
        f"name={name!r} is not a device in the data{did_you}{f' {told};' if told else ''} flopkit.device_names() lists them. Another card is "
        f"fk.Device({name!r}, peak={{'bf16': ...}}, bandwidth=..., memory=...), in dense FLOP/s, bytes/s and bytes"
    )


def _two(name: str) -> tuple[str, str] | None:
    """The two devices that *name* may be: what a driver prints so but for case and punctuation, and what it spells.

    >>> _two("tpu v3"), _two("TPU v3"), _two("TPU-V3")
    (('tpu-v3-core', 'tpu-v3'), None, None)
    """
    if name in printed() or name.lower() in entries():
        return None
    driver = next((one for spelled, one in printed().items() if names.plain(spelled) == names.plain(name)), None)
    spelled = {names.plain(one): one for one in entries()}.get(names.plain(name))
    return (driver, spelled) if driver and spelled and driver != spelled else None


def _known(name: str) -> str | None:
    """The device that *name* is a spelling of, as drivers and lspci print it, too."""
    if name in entries():
        return name
    for each in (name, _listed(name)):
        if each in printed():
            return printed()[each]
        for spelled in (names.plain(each), key(each)):
            if spelled in _meant() and not _another_maker(each, _meant()[spelled]):
                return _meant()[spelled]
    return None


def _another_maker(name: str, device: str) -> bool:
    """Whether *name* begins with a maker or a brand that is not the one of *device*.

    >>> _another_maker("Tesla M4", "apple-m4"), _another_maker("Apple M4", "apple-m4")
    (True, False)
    """
    return _maker(name) not in ("", entries()[device]["vendor"])


def _maker(name: str) -> str:
    """The maker whose name, or whose brand, *name* begins with."""
    first = re.match("|".join(_SAID), names.plain(name))
    return _SAID[first[0]] if first else ""


def _of_another_maker(name: str) -> str:
    """Whose the device is that *name* would be but for the maker that it says, and devices of this one.

    >>> _of_another_maker("Tesla M4")
    "apple-m4 is Apple's and not NVIDIA's; write 'apple-m4', or a device of NVIDIA: m60 or m60-die"
    """
    found, says = _meant().get(key(_listed(name))), _maker(_listed(name))
    if not found or not says:
        return ""
    theirs = _kin(name) or [one for one, each in entries().items() if each["vendor"] == says][:4]
    also = f", or a device of {says}: {_or(theirs)}" if theirs else ""
    return f"{found} is {entries()[found]['vendor']}'s and not {says}'s; write {found!r}{also}"


def _listed(name: str) -> str:
    """The card's name in a line of ``nvidia-smi -L`` or lspci, where the brackets behind the chip hold it.

    >>> _listed("GPU 0: NVIDIA A100-SXM4-80GB (UUID: GPU-1b2c)")
    'NVIDIA A100-SXM4-80GB'
    >>> _listed("3D controller: NVIDIA Corporation GH100 [H100 SXM5 80GB] (rev a1)")
    'H100 SXM5 80GB'
    """
    bare = re.sub(r"^GPU \d+: |\s*\((?:UUID|rev)\b[^)]*\)\s*$", "", name)
    return bare.rpartition("[")[2].removesuffix("]") if bare.endswith("]") else bare


def _or(found: list[str]) -> str:
    """Names in words: a, b or c."""
    return " or ".join(filter(None, (", ".join(found[:-1]), found[-1])))


_OTHER = re.compile(r"^(ti|super|max|ultra|pro|laptop|mobile|sff|d$)")
_MEMORY = re.compile(r"(?<![\da-z])(\d{2,3})(?: ?gb?(?![\da-z])|(?<=\d[-_ ]\d\d)$|(?<=\d[-_ ]\d\d\d)$)", re.IGNORECASE)


def near(name: str) -> list[str]:
    """Names of the class that *name* is of, for one that is not known.

    The same letters and the same number: an H20 is no H200, an MI308X no MI300X, a V100S no V100. What follows the number either begins
    as it does here, or differs in few letters, and where it says how much memory there is, that is the card's: a part for laptops, with
    more memory, or with Ti behind its number, is another device.

    >>> near("H100"), near("RTX 4090 Laptop GPU"), near("MI308X"), near("Trainium4")
    (['h100-sxm', 'h100-pcie', 'h100-nvl'], [], [], [])
    >>> near("A100-80G"), near("h100-sxmm"), near("4090")
    (['a100-sxm-80gb', 'a100-pcie-80gb'], ['h100-sxm'], ['rtx-4090'])
    >>> near("RTX 6000"), near("AMD Instinct MI250X/MI250")
    (['quadro-rtx-6000', 'rtx-6000-ada'], ['mi250x', 'mi250', 'mi250-gcd', 'mi250x-gcd'])
    """
    name = _listed(name)
    if "/" in name:  # MI250X/MI250
        products = {names.plain(key(each)) for each in name.split("/")}
        return [one for one in entries() if names.plain(kin(one).product) in products]
    if re.fullmatch(r"(?i)v\d[a-z]*", name):  # v6e
        return [one for one in entries() if kin(one).product == f"tpu-{name.lower()}"]
    name = re.sub(r"(?<=\d)[oO]+(?=\d|$)|(?<=\d)[oO](?=\d)", lambda zeros: "0" * len(zeros[0]), name)
    memory = _MEMORY.search(name)
    found = _same_class(_MEMORY.sub("", name))
    if memory:
        found = [one for one in found if re.search(rf"\b{memory[1]} GB", entries()[one]["title"])]
    return [one for one in found if not _another_maker(name, one)][: names.MOST]


def _other_memory(name: str) -> str:
    """Of a card that is known with another size of memory: with which."""
    memory = _MEMORY.search(name)
    found = _same_class(_MEMORY.sub("", _listed(name))) if memory else []
    sizes = dict.fromkeys(re.findall(r"\b\d+ GB", " ".join(entries()[one]["title"] for one in found)))
    return f"of that name the data has none with {memory[1]} GB, but {_or(list(sizes))}" if memory and sizes else ""


def _kin_of(name: str) -> str:
    """Cards whose names begin alike, of the same number or the nearest, for one that is none of them: H20 for an H20-3e."""
    found = _kin(name)
    return f"other cards of the data, with other peaks, are {_or(found)}" if found else ""


def _kin(name: str) -> list[str]:
    """Those cards, at most four."""
    bare = _listed(name)
    letters, number = _class(key(bare))[0], re.search(r"\d+", bare)
    if not (letters and number) or re.search(r"\d\w*\.\w", name):  # m5.24xlarge
        return []
    theirs = {one: _class(key(_MEMORY.sub("", one))) for one in entries() if not _another_maker(bare, one)}
    off = {one: abs(int(its[1]) - int(number[0])) for one, its in theirs.items() if its[0] == letters and its[1]}
    return sorted((one for one in off if not off[one] or min(off.values())), key=lambda one: off[one])[:4]


def _same_class(bare: str) -> list[str]:
    """Names of the class that *bare* is of, which says nothing of memory."""
    letters, number, rest = _class(key(bare))
    glued = re.search(r"\d([a-z]+)", bare.lower())
    found: dict[str, None] = {}
    begins: dict[str, None] = {}
    for spelled, meant in (*((one, one) for one in entries()), *aliases().items()):
        its_letters, its_number, its_rest = _class(key(_MEMORY.sub("", spelled)))
        if number:
            brand = len(letters) > 2 and its_letters.endswith(letters)  # rtx of quadrortx
            same = its_number == number and (
                _alike(letters, its_letters) or brand or (not letters and len(number) == 4)
            )
            other = (not rest and _OTHER.match(its_rest)) or (
                glued and len(glued[1]) < 3 and not its_rest.startswith(glued[1])
            )
            if same and not other and (its_rest.startswith(rest) or _alike(rest, its_rest, 3 if rest.isalpha() else 4)):
                found[meant] = None
        elif letters and its_letters.startswith(letters):
            begins[meant] = None
        elif letters and _alike(letters, its_letters):
            found[meant] = None
    return [one for one in entries() if one in (begins or found)]


def _class(spelled: str) -> tuple[str, str, str]:
    """Letters, the number after them, and what follows: rtx, 4080, super."""
    letters, number, rest = re.match(r"([^\d]*)(\d*)(.*)", spelled, re.S).groups()  # type: ignore[union-attr]
    return letters, number, rest


def _alike(one: str, other: str, least: int = 4) -> bool:
    """The same, or a slip apart, where neither has fewer letters than *least*."""
    from difflib import SequenceMatcher  # loaded when something is wrong, and not with every import

    both = SequenceMatcher(None, one, other)
    return one == other or (min(len(one), len(other)) >= least and both.real_quick_ratio() > 0.75 < both.ratio())


# -- names that are no card's ------------------------------------------------------------------------------------

# AWS, Google Cloud, Azure, Oracle: what the names of their machines begin with, written with "-" between all words, and the card in them.
_MACHINES = {
    "p2": "k80-die", r"g3s?": "m60-die", r"nv\d+s-v3": "m60-die",
    "p3dn": "v100-sxm", "p3": "v100-sxm-16gb", "g4dn": "t4", "p4de": "a100-sxm-80gb", "p4d": "a100-sxm-40gb", "g5": "a10g", "g6e": "l40s",
    "g6": "l4", "gr6": "l4", "g7e": "rtx-pro-6000-server", "p5e": "h200", "p5en": "h200", "p5": "h100-sxm", "p6-b200": "b200", "p6-b300": "b300",
    "p6e-gb200": "gb200", "p6e-gb300": "gb300", "trn1": "trainium", "trn1n": "trainium", "trn2": "trainium2", "trn2u": "trainium2",
    "trn3": "trainium3", "inf2": "inferentia2", "a2-highgpu": "a100-sxm-40gb", "a2-megagpu": "a100-sxm-40gb", "a2-ultragpu": "a100-sxm-80gb", "a3-highgpu": "h100-sxm",
    "a3-megagpu": "h100-sxm", "a3-edgegpu": "h100-sxm", "a3-ultragpu": "h200", "a4-highgpu": "b200", "a4x-highgpu": "gb200",
    "a4x-maxgpu": "gb300", "g2-standard": "l4", "g4-standard": "rtx-pro-6000-server", "ct4p": "tpu-v4", "ct5lp": "tpu-v5e", "ct5l": "tpu-v5e",
    "ct5p": "tpu-v5p", "ct6e": "tpu-v6e",
    r"nd\d*[a-z]*-h100-v5": "h100-sxm", r"nd\d*[a-z]*-h200-v5": "h200", r"nd\d*[a-z]*-mi300x-v5": "mi300x", r"nd(?:\d*[a-z]*-)+gb200-v6": "gb200",
    r"nd(?:\d*[a-z]*-)+gb300-v6": "gb300", r"nd\d*asr-v4|nd\d*(?:asr)?-?a100-v4": "a100-sxm-40gb", r"nd\d*a?m(?:sr)?-?a100-v4": "a100-sxm-80gb",
    r"nd(?:40rs-)?v2": "v100-sxm", r"nc\d*[a-z]*-h100-v5": "h100-nvl", r"nc\d*[a-z]*-a100-v4": "a100-pcie-80gb", r"nc\d*[a-z]*-t4-v3": "t4",
    r"nc(?:\d+r?s-)?v3": "v100-pcie-16gb", r"nv\d*[a-z]*-a10-v5": "a10",
    "bm-gpu-h100": "h100-sxm", "bm-gpu-h200": "h200", "bm-gpu-b200": "b200", "bm-gpu-gb200": "gb200", "bm-gpu-mi300x": "mi300x",
    "bm-gpu-l40s": "l40s", "bm-gpu-b4": "a100-sxm-40gb", "tpu7x-standard": "tpu-v7x", "bm-gpu-a100-v2": "a100-sxm-80gb", "bm-gpu4": "a100-sxm-40gb", r"[bv]m-gpu-a10": "a10",
}  # fmt: skip
_HOPPER, _BLACKWELL, _ADA = "an H100, H200, H20 or GH200", "a B200, B300, GB200 or GB300", "an L4, L40S or RTX 40"
_RDNA3, _RDNA4 = "rx-7900-xtx, rx-7900-xt or radeon-pro-w7900", "rx-9070-xt, rx-9070 or radeon-ai-pro-r9700"
_PASCAL = "a P100, P40, TITAN Xp or GTX 1080 Ti"
_MI200, _MI300, _MI350 = "mi210, mi250 or mi250x", "mi300a, mi300x or mi325x", "mi350x or mi355x"
_ARCHITECTURES = {
    "gfx90a": _MI200, "gfx942": _MI300, "gfx950": _MI350, "cdna2": _MI200, "cdna3": _MI300, "cdna4": _MI350, "mi200": _MI200,
    "gfx906": "mi50 or mi60", "gfx908": "mi100", "cdna": "mi100", "cdna1": "mi100", "gfx1100": _RDNA3, "rdna3": _RDNA3, "gfx1151": "radeon-8060s",
    "strixhalo": "radeon-8060s", "gfx1201": _RDNA4, "rdna4": _RDNA4, "sm37": "a K80", "kepler": "a K80", "sm52": "an M60", "maxwell": "an M60",
    "sm61": "a P40, TITAN Xp or GTX 1080 Ti", "sm87": "a Jetson AGX Orin", "sm110": "a Jetson Thor",
    "sm60": "a P100", "sm70": "a V100, TITAN V or Quadro GV100", "sm75": "a T4 or RTX 20", "sm80": "an A100 or A30", "sm86": "an A10, A40 or RTX 30", "sm89": _ADA,
    "sm90": _HOPPER, "sm100": "a B200 or GB200", "sm103": "a B300 or GB300", "sm120": "an RTX 50 or RTX PRO 6000", "sm121": "a GB10",
    "pascal": _PASCAL, "volta": "a V100, TITAN V or Quadro GV100", "turing": "a T4 or RTX 20", "ampere": "an A100, A30, A10, A40 or RTX 30", "ada": _ADA,
    "adalovelace": _ADA, "hopper": _HOPPER, "gracehopper": "a GH200", "blackwell": f"{_BLACKWELL}, or an RTX 50", "graceblackwell": "a GB200, GB300 or GB10",
    "gp100": "a P100", "gv100": "a V100", "ga100": "an A100 or A30", "gh100": _HOPPER, "pontevecchio": "a Max 1550",
}  # fmt: skip
# What a slice of a pod is called after, its chip, and the chips that one of its number is: v2 to v5p count cores, two a chip.
_PODS = {"v2": ("tpu-v2", 2), "v3": ("tpu-v3", 2), "v4": ("tpu-v4", 2), "v5p": ("tpu-v5p", 2), "v5litepod": ("tpu-v5e", 1), "v5e": ("tpu-v5e", 1),
         "v5lite": ("tpu-v5e", 1), "v6e": ("tpu-v6e", 1), "7x": ("tpu-v7x", 2)}  # fmt: skip


def _told(name: str) -> str:
    """What *name* is instead of a card, and what to type; empty where that is not known.

    >>> _told("v4-8")
    "it is a slice of a pod: flopkit.device('tpu-v4'), count=4"
    >>> _told("8x H100 SXM")
    "it says how many: flopkit.device('H100 SXM'), count=8"
    >>> _told("Standard_ND96isr_H100_v5")
    "it is a machine, of one or more h100-sxm: flopkit.device('h100-sxm'), with count="
    """
    text = name.strip()
    if re.search(r"\bMIG\b|\b\d+g\.\d+gb\b", text, re.IGNORECASE):
        return "a MIG slice has a share of its card's peak and bandwidth"
    if re.search(r"\bGRID\b|-\d+[QCBA]$", text):
        return "a virtual GPU is a share of a card"
    if re.search(r"(?i)\blaptop\b|\bmobile\b|max-q design", text):
        return "a laptop's part has other peaks than the card of its number, and they depend on the power that the laptop allows"
    if re.match(r"(?i)(nvidia[ -])?[dh]gx\b", text):
        return "it is a machine: name one of its cards, and say how many in count="
    if re.fullmatch(r"(?i)(nvidia )?(jetson )?orin( \(nvgpu\))?", text):
        return (
            "its driver says so of the Jetson AGX Orin, Orin NX and Orin Nano alike, which have other peaks and other memory; "
            "the AGX Orin with 64 GB is flopkit.device('jetson-agx-orin-64gb')"
        )
    if re.fullmatch(r"(?i)(nvidia |geforce |gtx )*titan x( \(pascal\))?", text):
        return "two cards, of 2015 and of 2016, have that name, and the TITAN Xp is another"
    bare = re.sub(r"^compute(?=\d)", "sm", names.plain(text.split(":")[0]))
    bare = re.sub(r"^(sm\d+)[af]$", r"\1", re.sub(r"^nvidia|^amd|^intel", "", bare))
    if bare in _ARCHITECTURES:
        return f"it is an architecture, which {_ARCHITECTURES[bare]} has"
    words = re.sub(r"[\s_.-]+", "-", text.lower())
    if many := _many(text, words):
        count, card = many
        return f"it says how many: flopkit.device({card!r}), count={count}"
    pod = re.fullmatch(r"(?:tpu-?)?(v?\d(?:-lite|[a-z]*))-(\d+|(?:pod)?slice|device)", words)
    if pod and (chip := _PODS.get(pod[1].replace("-", ""))):
        what, a_chip = chip
        count = f"{max(1, int(pod[2]) // a_chip)}" if pod[2].isdigit() else ""
        return f"it is a slice of a pod: flopkit.device({what!r}), {'' if count else 'with '}count={count}"
    machine = re.sub(r"^(standard|ml|u)-", "", words)
    begin = next(
        (each for each in sorted(_MACHINES, key=len, reverse=True) if re.match(rf"(?:{each})(?:-|x\d|$)", machine)),
        None,
    )
    if begin:
        return f"it is a machine, of one or more {_MACHINES[begin]}: flopkit.device({_MACHINES[begin]!r}), with count="
    if re.fullmatch(r"(?i)(cuda|gpu|auto|rocm|hip)(:\d+)?", text):
        return "flopkit.device() asks torch which card it uses"
    if re.fullmatch(r"(?i)(mps|xpu|hpu|npu|xla|neuron)(:\d+)?", text):
        return f"{text.split(':')[0].lower()} is a kind of device, and several have it: name the card"
    if re.search(r"(?i)^cpu$|x86_64|aarch64|\bxeon\b|\bepyc\b|\bcore\(tm\) i|\bryzen [3579]\b", text):
        return "of a processor, flopkit.ceilings() measures what it reaches, and flopkit.device('here') is that"
    return ""


def _many(text: str, words: str) -> tuple[str, str] | None:
    """How many of which card a name says, where that card is known or has a near name: of 7900xtx the x counts nothing."""
    found = (
        re.fullmatch(r"gpu-(\d+)x-(.+)", words)  # Lambda's machines
        or re.fullmatch(r"(\d+)\s*[x×*]\s*(.+)", text, re.IGNORECASE)
        or re.fullmatch(r"(.*\d|.*\s)\s*[x×*]\s*(\d+)|([\w-]+):(\d+)", text, re.IGNORECASE)  # H100 x 8, H100:8
    )
    if not found:
        return None
    count, card = sorted((each.strip() for each in found.groups() if each), key=str.isdigit, reverse=True)
    return (count, card) if re.search(r"\d|[^\W\d]{3}", card) and (_known(card) or near(card)) else None
