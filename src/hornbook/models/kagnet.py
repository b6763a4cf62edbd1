"""KagNet (Lin et al. 2019, arXiv 1909.02151): a multiple-choice head that also reads the schema graph of every choice.

The vectors of the concepts pass through graph convolutions. An LSTM reads the concepts and relations along every path;
attention pools the paths of a pair of concepts, and then the pairs of a statement. The result and the statement vector
of the encoder give the logit of the choice. A statement without paths has a graph vector of 0.

As in the paper, and unlike the published code, a convolution adds the node itself to the mean (not the sum) of its
neighbours. Vectors of concepts are fixed inputs that a linear layer maps to a width of `CONCEPT_WIDTH`.

Shapes: N sequences, D width, C nodes, E edges, P pairs, K paths, H nodes of the longest path, V concept width.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from hornbook.batch import SEQUENCES, Batch, Stream, stream_field
from hornbook.models.head_config import MASKED_LOGIT, HeadConfig
from hornbook.models.heads import ChoiceHead, PoolingLayer, TaskHead, upcast
from hornbook.nn.embeddings import embedding

CONCEPTS, EDGES, PAIRS, PATHS = "concepts", "concept_edges", "concept_pairs", "concept_paths"
CONCEPT_WIDTH, CONVOLUTIONS = 100, (50, 25)  # of the published code
MAX_PATHS = 1 << 14  # that the LSTM reads at once, which bounds its memory
TINIEST = 1e-30


@dataclass(frozen=True)
class ConceptNodes(Stream):
    vectors_CV: Tensor  # float32


@dataclass(frozen=True)
class ConceptEdges(Stream):
    """The edges, in both directions; a node is the mean over the edges that lead to it."""

    sources_E: Tensor = stream_field(index_into=CONCEPTS)
    targets_E: Tensor = stream_field(index_into=CONCEPTS)
    weights_E: Tensor = stream_field(padding=0)  # 1 / edges of the target


@dataclass(frozen=True)
class ConceptPairs(Stream):
    """A concept of the question and one of the answer, which are connected."""

    sequences_P: Tensor = stream_field(index_into=SEQUENCES)
    questions_P: Tensor = stream_field(index_into=CONCEPTS)
    answers_P: Tensor = stream_field(index_into=CONCEPTS)
    weights_P: Tensor = stream_field(padding=0)  # 1


@dataclass(frozen=True)
class ConceptPaths(Stream):
    """The paths of the pairs; after the end of a path its last node is repeated."""

    pairs_K: Tensor = stream_field(index_into=PAIRS)
    nodes_KH: Tensor = stream_field(index_into=CONCEPTS)
    relations_KH: Tensor  # the relation after each node
    lengths_K: Tensor = stream_field(padding=1)  # nodes
    weights_K: Tensor = stream_field(padding=0)  # 1


class PathAttention(NamedTuple):
    """The attention of a batch: over the paths of each pair, and over the pairs of each statement."""

    paths_K: Tensor
    pairs_P: Tensor


class GraphConvolution(nn.Module):
    """ReLU(W_self x + mean over the neighbours of W x)."""

    def __init__(self, width: int, new_width: int):
        super().__init__()
        self.own, self.neighbours = nn.Linear(width, new_width), nn.Linear(width, new_width, bias=False)

    def forward(self, x_CV: Tensor, edges: ConceptEdges) -> Tensor:
        messages_EV = self.neighbours(x_CV).index_select(0, edges.sources_E) * edges.weights_E[:, None]
        own_CV = self.own(x_CV)
        return torch.zeros_like(own_CV).index_add(0, edges.targets_E, messages_EV).add(own_CV).relu()


class KagNetHead(ChoiceHead):
    """With `keeps_weights`, the attention of the last batch is kept in `weights`."""

    def __init__(self, config, head_config: HeadConfig, pooling: PoolingLayer | None, with_bias: bool):
        TaskHead.__init__(self, config.head_dropout, pooling)
        kagnet = self.kagnet_config = head_config.graph
        self.concepts = nn.Linear(kagnet.concept_width, CONCEPT_WIDTH)
        widths = [CONCEPT_WIDTH, *CONVOLUTIONS] if kagnet.convolution else [CONCEPT_WIDTH]
        self.convolutions = nn.ModuleList(map(GraphConvolution, widths[:-1], widths[1:]))
        node_width = CONCEPT_WIDTH + (widths[-1] if kagnet.convolution else 0)
        self.relations = embedding(kagnet.num_relations, kagnet.relation_width)
        step_width = node_width + kagnet.relation_width
        if kagnet.lstm:
            self.lstm = nn.LSTM(step_width, kagnet.width, batch_first=True)
        else:
            self.path = nn.Linear(step_width, kagnet.width)
        self.pair = nn.Linear(2 * node_width + config.width, 2 * kagnet.width)
        self.pair_out = nn.Linear(2 * kagnet.width, kagnet.width)
        if kagnet.attention:
            self.path_query = nn.Linear(kagnet.width, kagnet.width)
            self.pair_query = nn.Linear(config.width, kagnet.width)
        self.inner = nn.Linear(2 * kagnet.width + config.width, kagnet.width)
        self.out = nn.Linear(kagnet.width + config.width, 1)
        self.keeps_weights, self.weights = False, None

    @torch.no_grad()
    def initialize(self, generator: torch.Generator, relation_vectors: np.ndarray | None = None) -> None:
        """PyTorch's usual initial weights, and biases of 0, except for the layers of a plain head: with the small
        weights of a Transformer, all paths would be alike for long. The relations start with their vectors in the
        graph, if there are any."""
        for name, part in self.named_modules():
            if isinstance(part, nn.Linear) and name != "out" and not name.startswith("cls"):
                nn.init.kaiming_uniform_(part.weight, a=5**0.5, generator=generator)
        nn.init.normal_(self.relations.weight, generator=generator)
        if relation_vectors is not None:
            self.relations.weight.copy_(torch.from_numpy(relation_vectors))

    def forward(self, x_TD: Tensor, batch: Batch, pooled_ND: Tensor | None) -> Tensor:
        with torch.autocast(x_TD.device.type, enabled=False):
            statement_ND = self.dropout(upcast(pooled_ND))
            graph_NG = self.graph_vectors(batch, statement_ND)
            inner_NW = torch.tanh(self.inner(torch.cat([self.dropout(graph_NG), statement_ND], -1)))
            return self.out(torch.cat([inner_NW, statement_ND], -1)).view(-1, batch.group_size)

    def graph_vectors(self, batch: Batch, statement_ND: Tensor) -> Tensor:
        """The vector of the schema graph of every sequence; 0 for one without paths."""
        concepts, edges, pairs, paths = (batch.streams[name] for name in (CONCEPTS, EDGES, PAIRS, PATHS))
        num_sequences, num_pairs = len(statement_ND), len(pairs.weights_P)
        if not len(paths.weights_K):
            if self.keeps_weights:
                self.weights = PathAttention(paths.weights_K, pairs.weights_P)
            return statement_ND.new_zeros(num_sequences, 2 * self.kagnet_config.width)
        nodes_CV = self._nodes(concepts, edges)
        ends_PV = [nodes_CV.index_select(0, each) for each in (pairs.questions_P, pairs.answers_P)]
        of_pair_PD = statement_ND.index_select(0, pairs.sequences_P)
        inner_PV = nn.functional.leaky_relu(self.pair(torch.cat([*ends_PV, of_pair_PD], -1)))
        pairs_PW = nn.functional.leaky_relu(self.pair_out(self.dropout(inner_PV)))
        paths_KW = self._paths(nodes_CV, paths)
        scores_K, scores_P = torch.zeros_like(paths.weights_K), torch.zeros_like(pairs.weights_P)
        if self.kagnet_config.attention:
            queries_KW = self.path_query(pairs_PW).index_select(0, paths.pairs_K)
            scores_K = (paths_KW * queries_KW).sum(-1)
            scores_P = (pairs_PW * self.pair_query(statement_ND).index_select(0, pairs.sequences_P)).sum(-1)
        weights_K = segment_softmax(scores_K, paths.pairs_K, paths.weights_K, num_pairs)
        weights_P = segment_softmax(scores_P, pairs.sequences_P, pairs.weights_P, num_sequences)
        if self.keeps_weights:
            self.weights = PathAttention(weights_K, weights_P)
        pooled_PW = segment_sum(paths_KW * weights_K[:, None], paths.pairs_K, num_pairs)
        latent_PG = torch.cat([pairs_PW, pooled_PW], -1) * weights_P[:, None]
        return segment_sum(latent_PG, pairs.sequences_P, num_sequences)

    def _nodes(self, concepts: ConceptNodes, edges: ConceptEdges) -> Tensor:
        """The vectors of the nodes, followed by the results of the convolutions."""
        x_CV = first_CV = self.concepts(concepts.vectors_CV)
        if not self.kagnet_config.convolution:
            return x_CV
        for convolve in self.convolutions:
            x_CV = convolve(x_CV, edges)
        return torch.cat([first_CV, x_CV], -1)

    def _paths(self, nodes_CV: Tensor, paths: ConceptPaths) -> Tensor:
        """The vector of every path, K x W: the last output of the LSTM, or the mean of its steps, each of which is a
        node and the relation after it (0 after the last node)."""
        num_paths, longest = paths.nodes_KH.shape
        positions_H = torch.arange(longest, device=nodes_CV.device)
        has_relation_KH = positions_H < paths.lengths_K[:, None] - 1
        relations_KHV = self.relations(paths.relations_KH) * has_relation_KH[..., None]
        nodes_KHV = nodes_CV.index_select(0, paths.nodes_KH.flatten()).unflatten(0, (num_paths, longest))
        steps_KHV = torch.cat([nodes_KHV, relations_KHV], -1)
        if not self.kagnet_config.lstm:
            is_step_KH = (positions_H < paths.lengths_K[:, None]).to(steps_KHV.dtype)
            means_KV = (steps_KHV * is_step_KH[..., None]).sum(1) / paths.lengths_K[:, None]
            return torch.tanh(self.path(means_KV))
        outputs_KHW = torch.cat([self.lstm(part)[0] for part in steps_KHV.split(MAX_PATHS)])
        last_K = torch.arange(num_paths, device=nodes_CV.device) * longest + paths.lengths_K - 1
        return outputs_KHW.flatten(0, 1).index_select(0, last_K)


def segment_sum(values_KV: Tensor, segments_K: Tensor, num_segments: int) -> Tensor:
    return values_KV.new_zeros(num_segments, *values_KV.shape[1:]).index_add(0, segments_K, values_KV)


def segment_softmax(scores_K: Tensor, segments_K: Tensor, weights_K: Tensor, num_segments: int) -> Tensor:
    """The softmax of the scores of each segment; entries of weight 0 are left out and get 0."""
    scores_K = scores_K.masked_fill(weights_K == 0, MASKED_LOGIT)
    highest = scores_K.new_full((num_segments,), MASKED_LOGIT)
    highest = highest.scatter_reduce(0, segments_K, scores_K.detach(), "amax")
    exponentials_K = (scores_K - highest.index_select(0, segments_K)).exp() * weights_K
    sums = segment_sum(exponentials_K, segments_K, num_segments)
    return exponentials_K / sums.index_select(0, segments_K).clamp(min=TINIEST)
