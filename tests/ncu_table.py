"""The small tables that tests write in the form of ``ncu --csv --page raw``."""

import csv
import io

from flopkit.measuring.hardware import ncu

N = 4096
BF16 = "sm__ops_path_tensor_src_bf16_dst_fp32.sum"
SPIN = "void at::cuda::<unnamed>::spin_kernel(long)"


def op(name):
    return f"smsp__sass_thread_inst_executed_op_{name}_pred_on.sum"


def table(kernels, capability=(9, 0), units=None, leave_out=()):
    """What ncu prints of kernels, ``(name, {counter: cell})``; counters that are not named have 0."""
    named = dict.fromkeys([*ncu.counters(capability), *ncu.MEMORY, *(name for _, values in kernels for name in values)])
    metrics = [name for name in named if name not in leave_out]
    text = io.StringIO()
    writer = csv.writer(text, quoting=csv.QUOTE_ALL, lineterminator="\n")
    writer.writerow(["ID", "Process ID", "Kernel Name", "Grid Size", *metrics])
    if units is not None:
        writer.writerow(["", "", "", "", *(units.get(name, "inst") for name in metrics)])
    for i, (name, values) in enumerate(kernels):
        writer.writerow([i, 77, name, "(132, 1, 1)", *(values.get(metric, 0) for metric in metrics)])
    return f"==PROF== Connected to process 77\n{text.getvalue()}"


READ = {"dram__bytes_read.sum": f"{2 * 2 * N**2:,}", "dram__bytes_write.sum": f"{2 * N**2:,}"}
