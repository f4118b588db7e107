"""One thread: on a busy machine two that wait for each other take a thousand times as long. And no ceilings that somebody measured here."""

import pytest
import torch


@pytest.fixture(autouse=True, scope="module")
def one_thread(tmp_path_factory):
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FLOPKIT_RECORDINGS", str(tmp_path_factory.mktemp("recordings")))
        yield
    torch.set_num_threads(before)
