"""Other people's counters, run as their documentation says: `flopkit.ask` and `ask_all`.

`tools` knows how each is called, `installed` finds it, `quietly` keeps it from leaving anything behind, `asking` asks, and `why` says what
is known of a number that is off, `releases` of which versions. `of_transformers` builds and counts transformers' own classes. `programs` are those that a chapter asks about; what was answered is in
data/counters.toml (`recorded`).
"""

from flopkit.peers.asking import ask, ask_all

__all__ = ["ask", "ask_all"]
