"""What a Python that ``python -m flopkit run`` started loads first: it waits for the first step of one of torch's optimisers.

Only the folder of this file is put before ``PYTHONPATH``. A ``sitecustomize`` that would have been loaded without it is loaded, too. Nothing but
the standard library is needed here; flopkit is loaded at the first step.
"""

from __future__ import annotations

import os
import sys
from typing import Any, cast

FOR = "torch.optim.optimizer"


class Waiting:
    """Finds torch's optimisers as the others find them, and has *then* called once they are loaded."""

    def __init__(self, then: Any) -> None:
        self._then = then

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        """What the other finders say of the one module that is waited for."""
        if name != FOR:
            return None
        sys.meta_path[:] = [finder for finder in sys.meta_path if finder is not self]
        for finder in sys.meta_path:
            spec = finder.find_spec(name, path, target) if hasattr(finder, "find_spec") else None
            if spec is not None:
                if hasattr(spec.loader, "exec_module"):
                    spec.loader = cast(Any, _Loading(spec.loader, self._then))
                return spec
        return None


class _Loading:
    """A module's own loader, and a call afterwards."""

    def __init__(self, loader: Any, then: Any) -> None:
        self._loader, self._then = loader, then

    def create_module(self, spec: Any) -> Any:
        return self._loader.create_module(spec)

    def exec_module(self, module: Any) -> None:
        module.__spec__.loader = module.__loader__ = self._loader
        self._loader.exec_module(module)
        self._then(module)


class Hook:
    """Called before each step of an optimiser, and at the end of the process. Whatever fails in it is said, and the program goes on."""

    def __init__(self, asked: str) -> None:
        self.asked, self.failed = asked, False
        self.attachment: Any = None
        self.is_compiling: Any = lambda: sys.modules["torch"].compiler.is_compiling()
        self.pid, self.folder = os.getpid(), os.environ.get("FLOPKIT_RUN_FOLDER", "")
        self.first = not self.folder
        if self.first:  # the others are started by this one
            import tempfile

            self.folder = os.environ["FLOPKIT_RUN_FOLDER"] = tempfile.mkdtemp(prefix="flopkit-run-")

    def optimisers_are_there(self, module: Any) -> None:
        """Look at each step from here on, by torch's own hook for all optimisers."""
        try:
            module.register_optimizer_step_pre_hook(self)
        except AttributeError:
            self.failed = True
            say("this torch has no hook for the steps of all optimisers (torch 2.0 has): nothing is counted")

    def __call__(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        """A step begins."""
        if self.is_compiling():
            return
        attachment = self.attachment
        if self.failed or (attachment is not None and attachment.quick() is optimizer):
            return
        try:
            if self.attachment is None:
                self.attachment = self.load()
                self.is_compiling = sys.modules["torch"].compiler.is_compiling
            self.attachment.before(optimizer, sys._getframe(1))
        except Exception as error:
            self.failed = True
            say(f"nothing is counted: {type(error).__name__}: {error}")

    def load(self) -> Any:
        """The attachment of this process."""
        import json

        asked = json.loads(self.asked)
        try:
            import flopkit
        except ModuleNotFoundError:  # this is another Python than the one in which flopkit is installed
            sys.path.append(asked["flopkit"])
            try:
                import flopkit  # noqa: F401
            finally:
                sys.path.remove(asked["flopkit"])
        from flopkit.integrations.attached import Attachment

        return Attachment(asked, self.folder, forget=self.forget)

    def forget(self) -> None:
        """In a process that was forked: it begins anew."""
        self.attachment = None

    def end(self) -> None:
        """The process ends."""
        try:
            if self.attachment is not None:
                self.attachment.end()
            if self.first and os.getpid() == self.pid:
                if self.attachment is None and not self.failed and not os.listdir(self.folder):
                    say(f"{self.why_nothing()}; nothing was counted")
                import shutil

                shutil.rmtree(self.folder, ignore_errors=True)
        except Exception as error:
            say(f"{type(error).__name__}: {error}")

    def why_nothing(self) -> str:
        """Why no step was seen."""
        if "torch" not in sys.modules:
            import importlib.util

            if importlib.util.find_spec("torch") is None:
                return f"the program ran in {sys.executable}, where torch is not installed"
            return "this program never imported torch"
        return "no torch optimiser made a step that Python saw (a step inside of a compiled function or of a CUDA graph is not seen)"


def say(text: str) -> None:
    """A line on standard error."""
    try:
        print(f"flopkit: {text}", file=sys.stderr, flush=True)
    except (OSError, ValueError, AttributeError):  # closed by the program, or by who read it
        pass


def _begin() -> None:
    import atexit
    import contextlib

    if unseen := os.environ.pop("FLOPKIT_RUN_UNSEEN", ""):
        with contextlib.suppress(OSError):  # another process was here before
            os.unlink(unseen)
    hook = Hook(os.environ["FLOPKIT_RUN"])
    atexit.register(hook.end)
    sys.meta_path.insert(0, Waiting(hook.optimisers_are_there))


def _chain() -> None:
    """Load the ``sitecustomize`` that would be here without this one, and leave the path as it would be."""
    from importlib.machinery import PathFinder
    from importlib.util import module_from_spec

    here = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [each for each in sys.path if os.path.abspath(each or ".") != here]
    spec = PathFinder.find_spec("sitecustomize", sys.path)
    if spec is not None and spec.loader is not None:
        sys.modules["sitecustomize"] = module = module_from_spec(spec)
        spec.loader.exec_module(module)


if __name__ == "sitecustomize":
    try:
        if "FLOPKIT_RUN" in os.environ:
            _begin()
    except Exception as error:
        say(f"nothing is counted: {type(error).__name__}: {error}")
    _chain()
