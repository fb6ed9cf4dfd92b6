"""Graphs that are replayed in turns keep their results apart."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.gpu


def test_a_graphs_temporaries_never_lie_where_another_keeps_its_output():
    import torch

    from tilebench_core.timing.gpu import capture

    source = torch.arange(1 << 20, device="cuda", dtype=torch.float32)

    def with_a_temporary():
        return (source + 1) * 2

    def without():
        return source * 3

    graphs = [capture(with_a_temporary), capture(without), capture(with_a_temporary)]
    for graph in [*graphs, *reversed(graphs)]:
        graph.replay()
    torch.cuda.synchronize()
    for graph, expected in zip(graphs, [(source + 1) * 2, source * 3, (source + 1) * 2], strict=True):
        assert torch.equal(graph.outputs, expected)
