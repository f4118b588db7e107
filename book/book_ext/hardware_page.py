"""The parts of the page "Hardware", from the file of devices: Markdown tables, one a maker, and a fold for each device's sources."""

import re
import tomllib
from importlib.resources import files

import flopkit as fk
from book_ext.markdown_table import table
from flopkit import units

SOURCES = tomllib.loads((files("flopkit") / "data" / "devices.toml").read_text("utf-8"))["sources"].values()
HEAD = [
    *("device", "year", "16 bit", "fp8", "fp4", "int8", "fp32"),
    *("bandwidth", "ridge", "memory, GB", "link, GB/s", "measured, 16 bit", "watts"),
]
# devices that have no units for a format, by the beginning of their names: a dash; for the others that lack a peak, a question mark
_OLD = (
    r"k80|m60|p100|p40|v100|t4|quadro|titan|gtx|rtx-8000|rtx-20[678]0|a2$|a16|a10|a30|a40|a800|rtx-3|rtx-a|jetson-agx-orin"
    r"|mi50|mi60|mi100|mi2|rx-7|radeon-pro-w7|radeon-8060s|tpu-v[234]|tpu-v5e|arc|max|mtt|apple"
)
LACKS = {
    "fp8": _OLD,
    "fp4": rf"{_OLD}|l\d|rtx-4|rtx-[256]000|h\d|gh|mi3[02]|rx-9|radeon|tpu|trainium$|trainium2|inferentia|gaudi",
    "int8": r"k80|m60|p100|v100|quadro-gv|titan-v|tpu-v[23]|trainium[23]|apple|ascend",
    "half": r"p40|gtx-1080|titan-xp|k80|m60",
    "fp32": r"$^",
}
GROUPS = {
    "servers": lambda one: one.vendor == "NVIDIA" and not re.match(r"rtx|gtx|titan|quadro|gb10|jetson", one.name),
    "cards": lambda one: one.vendor == "NVIDIA" and bool(re.match(r"rtx|gtx|titan|quadro|gb10|jetson", one.name)),
    "amd": lambda one: one.vendor == "AMD",
    "google": lambda one: one.vendor == "Google",
    "others": lambda one: one.vendor not in ("NVIDIA", "AMD", "Google"),
}


def devices(group):
    """A group's devices: those of one maker together, the newest first, and of a year the fastest."""
    found = [one for one in map(fk.device, fk.device_names()) if GROUPS[group](one)]
    makers = list(dict.fromkeys(one.vendor for one in found))
    return sorted(found, key=lambda one: (makers.index(one.vendor), -one.year, -max(map(one.peak, one.dtypes))))


def half(device):
    """The 16-bit format whose peak stands for both."""
    return next((key for key in ("bf16", "fp16") if key in device.dtypes), None)


def row(device):
    """The cells of a device."""

    def tera(value):
        return f"{value / 1e12:,.5g}"

    def peak(column):
        key = half(device) if column == "half" else column
        if key in device.dtypes:
            return tera(device.peak(key))
        return "–" if re.match(LACKS[column], device.name) else "?"

    ridge, best = half(device), device.ceilings.get(half(device))
    return [
        f"**{device.name}**",
        str(device.year),
        *map(peak, ("half", "fp8", "fp4", "int8", "fp32")),
        units.si(device.bandwidth, "B/s"),
        f"{device.ridge(ridge):,.0f}" if ridge else peak("half"),
        f"{device.memory / 1e9:,.4g}" if device.memory else "?",
        f"{device.link_bandwidth / 1e9:,.4g}" if device.link_bandwidth else "?",
        tera(best) if best else "?",
        f"{device.watts:,.0f}" if device.watts else "?",
    ]


def _table(group):
    return table([HEAD, *map(row, devices(group))])


def servers():
    return _table("servers")


def cards():
    return _table("cards")


def amd():
    return _table("amd")


def google():
    return _table("google")


def others():
    return _table("others")


def sources():
    """What each device's numbers were read in, and what its sources leave open: a line
    a device, which unfolds."""
    lines = []
    for device in (one for group in GROUPS for one in devices(group)):
        single = [
            f"{field.replace('_bandwidth', '').capitalize()}: {where}." for field, where in device.sources.items()
        ]
        text = " ".join(filter(None, (f"{device.source}.", *single, device.notes)))
        for each in SOURCES:
            if "url" in each:
                text = text.replace(each["title"], f"[{each['title']}]({each['url']})")
        lines += [f"<details><summary>{device.name}: {device.title}</summary>", "", text, "", "</details>", ""]
    return "\n".join(lines)
