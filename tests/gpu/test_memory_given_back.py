"""Processes that wait for their next work leave the device's memory to others."""

import pytest
import torch
from torch import nn

from hornbook.devices import warm_up_on_side_stream
from hornbook.evaluation.experiments.jobs import release_memory

pytestmark = pytest.mark.gpu
MAX_LEFT = 64 * 2**20  # bytes


def captured(net: nn.Module, num_rows: int, pool):
    x_ND = torch.randn(num_rows, 256, device="cuda")
    with warm_up_on_side_stream():
        net(x_ND).sum().backward()
        net.zero_grad(set_to_none=True)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, pool=pool):
        net(x_ND).sum().backward()
    net.zero_grad(set_to_none=True)
    return graph


def test_nothing_is_left_of_many_captures():
    release_memory()
    before = torch.cuda.memory_reserved()
    net = nn.Sequential(*(nn.Linear(256, 256) for _ in range(4))).cuda()
    graphs, pool = [], None
    for number in range(20):
        graphs.append(captured(net, 1024 + 128 * number, pool))
        pool = pool or graphs[0].pool()
        graphs[-1].replay()
    torch.cuda.synchronize()
    assert torch.cuda.memory_reserved() - before < 1024 * 2**20  # 20 x 2 workspaces of 32 MiB would be more
    del net, graphs, pool
    release_memory()
    assert torch.cuda.memory_reserved() - before < MAX_LEFT
