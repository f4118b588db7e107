"""The parts of the page "Hardware", from the file of devices: Markdown tables."""

import tomllib
from importlib.resources import files

import flopkit as fk
from book_ext.markdown_table import table
from flopkit import units

# what stands where no peak is known: every device has units for fp32 and 16 bit; those without a peak in fp8 have no units for it
FORMATS = {"fp32": "?", "bf16": "?", "fp8": "–"}
SOURCES = tomllib.loads((files("flopkit") / "data" / "devices.toml").read_text("utf-8"))["sources"].values()


def peaks():
    """One row a device: dense peaks by format, memory, bandwidth, and the ridge in bf16
    (fp16 where there is no bf16)."""
    rows = [["", "fp32", "16 bit", "fp8", "memory, GB", "bandwidth", "ridge, 16 bit"]]
    for name in fk.device_names():
        device = fk.device(name)
        half = next((key for key in ("bf16", "fp16") if key in device.dtypes), None)
        shown = ((half if key == "bf16" else key, unknown) for key, unknown in FORMATS.items())
        cells = [f"{device.peak(key) / 1e12:,.5g}" if key in device.dtypes else unknown for key, unknown in shown]
        cells += [f"{device.memory / 1e9:,.4g}" if device.memory else "?", units.si(device.bandwidth, "B/s")]
        rows.append([f"**{name}**", *cells, f"{device.ridge(half):,.0f}" if half else "?"])
    return table(rows)


def sources():
    """What each device's numbers were read in, and what its sources leave open: a line
    a device, which unfolds."""
    lines = []
    for name in fk.device_names():
        device = fk.device(name)
        source = device.source
        for each in SOURCES:
            if "url" in each:
                source = source.replace(each["title"], f"[{each['title']}]({each['url']})")
        text = " ".join(filter(None, (f"{source}.", device.notes)))
        lines += [f"<details><summary>{name}: {device.title}</summary>", "", text, "", "</details>", ""]
    return "\n".join(lines)
