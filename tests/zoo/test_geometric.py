"""PyG: networks on graphs, with gathers and scatters around their products. Without its compiled extensions, which need a build of their own."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from whole_models import check

geometric = pytest.importorskip("torch_geometric.nn", reason="make zoo installs torch_geometric")

pytestmark = pytest.mark.zoo

NODES, EDGES, WIDTH = 20, 60, 8


def layers(name, *sizes, **options):
    """Two layers of a kind, with a rectifier between."""
    kind = getattr(geometric, name)
    return kind(WIDTH, 16, *sizes, **options), kind(16, WIDTH, *sizes, **options)


class Two(nn.Module):
    def __init__(self, first, second, **inputs):
        super().__init__()
        self.first, self.second, self.inputs = first, second, inputs

    def forward(self, x, edges):
        return self.second(self.first(x, edges, **self.inputs).relu(), edges, **self.inputs)


def mlp():
    return nn.Sequential(nn.Linear(WIDTH, 16), nn.ReLU(), nn.Linear(16, WIDTH))


KINDS = """
    GCNConv SAGEConv GATConv GATv2Conv TransformerConv GraphConv TAGConv ARMAConv SGConv FeaStConv LEConv ClusterGCNConv
    MFConv GENConv SuperGATConv
""".split()
MODELS = {
    **{kind: lambda kind=kind: Two(*layers(kind)) for kind in KINDS},
    "ChebConv": lambda: Two(*layers("ChebConv", K=3)),
    "GATConv, four heads": lambda: Two(geometric.GATConv(WIDTH, 4, heads=4), geometric.GATConv(16, WIDTH)),
    "GINConv": lambda: Two(geometric.GINConv(mlp()), geometric.GINConv(mlp())),
    "EdgeConv": lambda: geometric.EdgeConv(nn.Linear(2 * WIDTH, WIDTH)),
    "RGCNConv": lambda: Two(*layers("RGCNConv", num_relations=3), edge_type=torch.arange(EDGES) % 3),
    "NNConv": lambda: Two(
        geometric.NNConv(WIDTH, 4, nn.Linear(3, 4 * WIDTH)),
        geometric.NNConv(4, WIDTH, nn.Linear(3, 4 * WIDTH)),
        edge_attr=torch.linspace(-1, 1, 3 * EDGES).view(EDGES, 3),
    ),
    "GatedGraphConv": lambda: geometric.GatedGraphConv(WIDTH, num_layers=3),
    "GPSConv": lambda: geometric.GPSConv(WIDTH, geometric.GCNConv(WIDTH, WIDTH), heads=2),
    "GCN": lambda: geometric.GCN(WIDTH, 16, num_layers=3, jk="lstm"),
    "GraphSAGE": lambda: geometric.GraphSAGE(WIDTH, 16, num_layers=3, jk="cat"),
    "PNA": lambda: geometric.PNA(
        WIDTH,
        16,
        num_layers=2,
        aggregators=["mean", "max", "std"],
        scalers=["identity", "amplification"],
        deg=torch.ones(9),
    ),
    "EdgeCNN": lambda: geometric.EdgeCNN(WIDTH, 16, num_layers=2),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", MODELS)
def test_counted(name):
    torch.manual_seed(0)
    edges = torch.randint(NODES, (2, EDGES))
    check(MODELS[name](), (torch.randn(NODES, WIDTH), edges), meta=False)
