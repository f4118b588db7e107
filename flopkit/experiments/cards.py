"""Two processes on this machine, each with a network card of its own, and between the cards
a wire of a chosen speed: what `wire` measures over.

A process gets a network namespace of Linux, in which there is one card, an end of a
``veth`` pair. The token bucket of ``tc`` limits what the card sends. That takes the rights
of root, or a user namespace in which the kernel gives them over these two cards alone.
``python -m flopkit.experiments.cards '{"cases": […], …}'`` in the first namespace makes the
wire and starts `ranks` at both ends.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from functools import cache
from pathlib import Path

__all__ = ["RANKS", "burst", "command", "main", "refused", "sent", "set_speed"]

RANKS = 2
CARD = "wire"  # what either end calls its card
MTU = 9000  # bytes of a packet: of larger ones the bucket would have to hold as many
ADDRESSES = ("10.0.0.1", "10.0.0.2")  # nobody else is in these namespaces
PATHS = os.pathsep.join(
    [os.environ.get("PATH", os.defpath), "/usr/sbin", "/sbin"]
)  # where ip and tc are for root alone


def burst(megabits: int) -> int:
    """Bytes that a card sends at once after it was idle, faster than its speed: those of
    200 µs, and at least those of two packets. The bucket needs some, as the kernel fills it
    only now and then.

    >>> burst(100), burst(1000)
    (18000, 25000)
    """
    return max(2 * MTU, megabits * 25)


def _speed(megabits: int) -> list[str]:
    wait = str(2**22)  # bytes that may wait for the card: none is dropped
    return ["tc", "qdisc", "replace", "dev", CARD, "root", "tbf", "rate", f"{megabits}mbit", "burst", str(burst(megabits)), "limit", wait]  # fmt: skip


def _pair(other: int) -> list[str]:
    """The command that makes both cards, the second in the namespace of process *other*."""
    return ["ip", "link", "add", CARD, "mtu", str(MTU), "type", "veth", "peer", "name", CARD, "mtu", str(MTU), "netns", str(other)]  # fmt: skip


def _namespace() -> list[str]:
    """What begins a command that is to run in a network namespace of its own."""
    own = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
    return ["unshare", *own, "--net"]


@cache
def refused() -> str:
    """Why this machine gives no wire of a chosen speed, and what would allow it, in a
    sentence; empty where it does.

    >>> isinstance(refused(), str)
    True
    """
    if sys.platform != "linux":
        return f"A wire of a chosen speed needs Linux's network namespaces, and this is {sys.platform}: a virtual machine with Linux has them."
    lacking = [name for name in ("unshare", "nsenter", "ip", "tc") if shutil.which(name, path=PATHS) is None]
    if lacking:
        return f"A wire of a chosen speed needs {', '.join(lacking)}, which this machine lacks: install util-linux and iproute2."
    trial = [["ip", "link", "add", CARD, "type", "veth", "peer", "name", "other"], _speed(1)]
    tried = _run([*_namespace(), "sh", "-c", " && ".join(map(" ".join, trial))])
    if tried.returncode == 0:
        return ""
    why = " ".join(tried.stderr.split()) or f"exit status {tried.returncode}"
    return (
        f"This machine refuses a wire of a chosen speed ({why}): run as root, in a container with --cap-add=SYS_ADMIN --cap-add=NET_ADMIN, "
        "or let the kernel give user namespaces to everybody."
    )


def command(asked: str) -> list[str]:
    """The command that runs the ranks at the two ends of a wire.

    Raises
    ------
    OSError
        Where the system refuses such a wire.
    """
    if why := refused():
        raise OSError(why)
    return [*_namespace(), sys.executable, "-m", "flopkit.experiments.cards", asked]


def set_speed(megabits: int) -> None:
    """Let this process's own card send at so many Mbit/s from now on."""
    _must(_speed(megabits))


def sent() -> int:
    """Bytes that this process's own card has sent, headers of Ethernet, IP and TCP among
    them."""
    [line] = [line for line in Path("/proc/self/net/dev").read_text("ascii").splitlines() if line.strip().startswith(f"{CARD}:")]  # fmt: skip
    return int(line.split(":")[1].split()[8])


def main(asked: str) -> None:
    """In the first namespace: open the second, make the wire, run a rank at each end."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that what is started below ends, too
    hold = [
        "unshare",
        "--net",
        "sh",
        "-c",
        "echo; exec cat",
    ]  # it is there once it says a line, and ends when this process does
    with subprocess.Popen(hold, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=_env()) as other:
        assert other.stdin is not None and other.stdout is not None
        other.stdout.readline()
        inside: tuple[list[str], list[str]] = [], ["nsenter", f"--net=/proc/{other.pid}/ns/net"]
        _must(_pair(other.pid))
        for enter, address in zip(inside, ADDRESSES, strict=True):
            _must([*enter, "ip", "addr", "add", f"{address}/30", "dev", CARD])
            for card in ("lo", CARD):
                _must([*enter, "ip", "link", "set", card, "up"])
        ranks: list[subprocess.Popen[bytes]] = []
        try:
            for rank, enter in enumerate(inside):
                where = {
                    "RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(RANKS), "MASTER_ADDR": ADDRESSES[0], "MASTER_PORT": "29500",
                    "GLOO_SOCKET_IFNAME": CARD,
                }  # fmt: skip
                run = [*enter, sys.executable, "-m", "flopkit.experiments.ranks", asked]
                ranks.append(subprocess.Popen(run, env=_env(where)))
            while any(each.poll() is None for each in ranks) and not any(each.poll() for each in ranks):
                time.sleep(0.05)
        finally:
            for each in ranks:
                each.terminate()
                each.wait()
            other.stdin.close()
    sys.exit(any(each.returncode for each in ranks))


def _env(more: Mapping[str, str] | None = None) -> dict[str, str]:
    return {**os.environ, "PATH": PATHS, **(more or {})}


def _run(asked: list[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(asked, capture_output=True, text=True, env=_env(), timeout=60, check=False)


def _must(asked: list[str]) -> None:
    found = _run(asked)
    if found.returncode:
        raise OSError(f"{' '.join(asked)}: {' '.join(found.stderr.split())}")


if __name__ == "__main__":
    main(sys.argv[1])
