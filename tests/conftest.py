"""One thread a test process: xdist runs several side by side on few cores."""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"

import numpy as np
import pytest
import torch

torch.set_num_threads(1)


@pytest.fixture
def random() -> np.random.Generator:
    return np.random.default_rng(0)
