"""The program: it finds the command that is asked for, runs it and prints what it
gives."""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Any

from flopkit import names
from flopkit.__about__ import __version__

__all__ = ["COMMANDS", "main"]

# Each is a module beside this one, loaded where it is asked for: EXAMPLES of its use,
# arguments(parser), which adds what it takes, and run(asked), which gives what --json
# prints and what is printed else. One that has JSON, a help, writes lines into a file.
COMMANDS = {
    "devices": "Peaks and bandwidths of accelerators.",
    "count": "FLOPs, parameters, weights and KV cache of a model. A closed form answers; for a type without one, transformers' own "
    "class is built without memory and counted, where torch and transformers are installed. The output says which.",
    "doctor": "MFU of a training run, and what explains a reported MFU that differs.",
    "train": "A whole training run: hours, device-hours, energy and dollars.",
    "measure": "Run one experiment without saving it, or measure and save this machine's ceilings.",
    "record": "Run the experiments on this machine and save them in a file; a second run resumes it.",
    "run": "Run a training program unedited; count the FLOPs of a step; print MFU, HFU and tokens/s: python -m flopkit run -- python train.py",
    "counters": "Compare counted FLOPs with the hardware's own counters: Nsight Compute, GPM, perf.",
}
EXAMPLES = (
    "devices",
    "count llama-3-8b --seq 8192",
    "doctor --tokens-per-s 9600 --model llama-2-7b --seq 4096 --device h100-sxm --reported 0.46",
)

LONGEST = 2000  # characters of an error: what somebody gave may be a whole file


class _Parser(argparse.ArgumentParser):
    """A parser whose errors are one line, as those of the functions are."""

    def error(self, message: str) -> Any:
        raise ValueError(f"{message}; see {self.prog} --help")


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code: 0, 1 where experiments failed or counts
    differ, 2 where the input is wrong, 130 where the user stopped it.

    Parameters
    ----------
    argv : Sequence[str], optional
        The arguments. None: those of the program.

    Examples
    --------
    >>> main(["count", "gpt2", "--seq", "1024", "--convention", "SIX_N"])
    gpt2, forward: 1 × 1,024 tokens, convention SIX_N; by a closed form
    quantity          value
    parameters        124,439,808
    active            124,439,808
    FLOPs             254.9 GFLOPs
    FLOPs a token     248.9 MFLOPs
    weights in bf16   248.9 MB
    KV cache          37.75 MB
    KV cache a token  36.86 kB
    0
    """
    asked = argparse.Namespace()
    try:
        words, command = _divided(sys.argv[1:] if argv is None else argv)
        asked = _asked(words)
        asked.command = command
        result, table = asked.run(asked)
        text = json.dumps(result, ensure_ascii=False, indent=1, default=float) if asked.json else str(table)
        print(_harmless(text), flush=True)
    except BrokenPipeError:  # a reader such as head has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except (ValueError, TypeError, ArithmeticError, OSError, RecursionError, ImportError, MemoryError) as error:
        said = " ".join(str(error).split()) or "not enough memory"
        said = said if len(said) <= LONGEST else f"{said[: LONGEST // 2]} … {said[-LONGEST // 2 :]}"
        print(_harmless(f"flopkit: {_as_options(said, asked)}"), file=sys.stderr)
        return 2
    except KeyboardInterrupt as stop:
        print(f"flopkit: {stop or 'interrupted'}", file=sys.stderr)
        return 130
    return 1 if getattr(asked, "failed", False) else 0


def _asked(words: Sequence[str]) -> argparse.Namespace:
    """What *words* ask for: a command and its options, all of which are known."""
    first = next((word for word in words if not word.startswith("-")), None)
    if first is None and not {"-h", "--help", "--version"} & {*words}:
        raise ValueError(f"name a command: {', '.join(COMMANDS)}; see python -m flopkit --help")
    if first is not None and first not in COMMANDS:
        raise ValueError(f"{first!r} is not a command; {names.hint(first, COMMANDS)}; see python -m flopkit --help")
    asked, unknown = _parser(words).parse_known_args(words)
    if unknown and first == "run" and not unknown[0].startswith("-"):
        raise ValueError(
            f"{' '.join(unknown)}: the command goes after --, such as python -m flopkit run -- python train.py"
        )
    if unknown:
        near = (
            names.hint(unknown[0], asked.options)
            if unknown[0].startswith("-")
            else "it has one positional argument at most"
        )
        raise ValueError(f"unknown argument {unknown[0]!r}; {near}; see python -m flopkit {first} --help")
    return asked


def _divided(argv: Sequence[str]) -> tuple[Sequence[str], Sequence[str]]:
    """What flopkit is asked, and the command of another program, which ``run`` has after
    ``--``."""
    if "--" not in argv or "run" not in argv[: (at := argv.index("--"))]:
        return argv, ()
    return argv[:at], argv[at + 1 :]


def _as_options(said: str, asked: argparse.Namespace) -> str:
    """What a function *said*, with its arguments as a shell has them: ``--seq`` for ``seq=``. Code stays as it is.

    >>> _as_options("seq=0: see fk.load(seq=1); give mfu= or count=2", argparse.Namespace(options=["--seq", "--mfu"]))
    '--seq 0: see fk.load(seq=1); give --mfu or count=2'
    """

    def option(found: re.Match[str]) -> str:
        name = f"--{found[1].replace('_', '-')}" if found[1] else ""
        return f"{name}{' ' * bool(found[2])}" if name in getattr(asked, "options", ()) else found[0]

    said = said.replace("flopkit.device_names() lists them", "python -m flopkit devices lists them")
    call = r"[\w.]+\((?:[^()]|\((?:[^()]|\([^()]*\))*\))*\)"
    return re.sub(rf"{call}|(?<![\w.-])(\w+)=(?=([^\s,;:)])?)", option, said)


def _harmless(text: str) -> str:
    """*text* as a terminal can show it: what would move its cursor, set its title or turn
    the line round is spelled out, as JSON spells it."""
    return re.sub(
        "[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]", lambda odd: f"\\u{ord(odd[0]):04x}", text
    )


def _parser(words: Sequence[str]) -> argparse.ArgumentParser:
    """The parser of these words: of the commands, only one among them is loaded."""
    parser = _Parser(prog="python -m flopkit", description="Every FLOP accounted for.", **_help(EXAMPLES))
    parser.add_argument("--version", action="version", version=f"flopkit {__version__}")
    commands = parser.add_subparsers(title="commands", required=True, metavar=" | ".join(COMMANDS))
    for name, text in COMMANDS.items():
        if name not in words:
            commands.add_parser(name, help=text)
            continue
        command = import_module(f"flopkit.cli.{name}")
        added = commands.add_parser(name, help=text, description=text, **_help(command.EXAMPLES))
        if lines := getattr(command, "JSON", None):
            added.add_argument("--json", metavar="FILE", help=lines)
        else:
            added.add_argument("--json", action="store_true", help="print one JSON object instead of a table")
        command.arguments(added)
        known = [option for action in added._actions for option in action.option_strings if option.startswith("--")]
        added.set_defaults(run=command.run, options=known)
    return parser


def _help(examples: Sequence[str]) -> dict[str, Any]:
    shown = "".join(f"\n  python -m flopkit {line}" for line in examples)
    return {
        "epilog": f"examples:{shown}",
        "formatter_class": argparse.RawDescriptionHelpFormatter,
        "allow_abbrev": False,
    }
