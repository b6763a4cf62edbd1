"""The output that a task needs from a model, and its entries in `config.json`. Nothing here imports torch.

A task declares a `HeadConfig`; the family builds its published head for it (`models/heads.py`). Outputs are in the
order of the sequences of a packed batch, padding sequences last:

    sequence   N x L      logits of classes, or a number (L = 1); N / 2 x L for pairs encoded as two sequences
    choice     N / C x C  a logit for each of the C choices of a question
    tokens     T x L      logits of tags per token
    spans      N x S x 2  logits of start and end per token, MASKED_LOGIT beyond the end of a sequence; with an answer
                          classifier, N x (S + 1) x 2, where the last column holds (has an answer, has none)
    vectors    N / G x G x D  the embedding of each of the G texts that are compared

Shapes: T tokens, N sequences, S longest sequence, D width, L labels, C choices.
"""

from dataclasses import asdict, dataclass, fields
from typing import Literal, NamedTuple, get_args

MASKED_LOGIT = -1e4  # exp underflows to 0
# What is predicted for an input: one class, several classes, or a number. The names are those of `transformers`.
ProblemType = Literal["single_label_classification", "multi_label_classification", "regression"]
HeadLayers = Literal["linear", "mlp", "cnn", "bilstm", "attention"]
PairEncoding = Literal["joint", "separate", "both"]  # two texts in one sequence, in one sequence each, in both orders


class HeadOptions(NamedTuple):
    """What a user chooses about the head; fields as in `HeadConfig`."""

    layers: HeadLayers = "linear"
    pair_encoding: PairEncoding = "joint"
    has_answer_classifier: bool = False


@dataclass(frozen=True)
class OutputType:
    """What all heads with one kind of output have in common; `models/heads.py` has the head of each."""

    task_name: str  # the kind of task that the head is for
    has_labels: bool = False  # the outputs of the head correspond to the labels of a task
    is_configurable: bool = False  # the layers, the pair encoding and the problem type can be chosen
    of_sequences: bool = False  # outputs belong to whole sequences, otherwise to tokens
    per_token: bool = False  # T rows of outputs, otherwise one per group
    is_grouped: bool = False  # any number of adjacent sequences have one output
    is_embedding: bool = False  # vectors of texts, which are trained against those of the whole batch
    hf_weight: str = "classifier"  # name of the last layer in most classes of `transformers`


OUTPUT_TYPES = {
    "sequence": OutputType("classification", has_labels=True, is_configurable=True, of_sequences=True),
    "choice": OutputType("multiple-choice", of_sequences=True, is_grouped=True),
    "tokens": OutputType("tagging", has_labels=True, per_token=True),
    "spans": OutputType("span", hf_weight="qa_outputs"),
    "vectors": OutputType("similarity", is_embedding=True),
}
TASK_NAMES: dict[ProblemType, str] = {
    "single_label_classification": "classification",
    "multi_label_classification": "multi-label",
    "regression": "regression",
}


@dataclass(frozen=True)
class KagNetConfig:
    """The layers of the head that reads paths of a knowledge graph (`models/kagnet.py`); those that are turned off are
    replaced by a mean, or left out."""

    concept_width: int  # of the entity vectors
    relation_width: int
    num_relations: int  # with those for edges that are followed backwards
    width: int = 128  # of the path and pair vectors
    convolution: bool = True
    lstm: bool = True
    attention: bool = True


@dataclass(frozen=True)
class HeadConfig:
    """What a task head outputs, and the layers that compute it."""

    output: str  # what the head outputs, one of OUTPUT_TYPES
    num_labels: int = 1
    labels: tuple[str, ...] = ()  # names of classes or tags, for `id2label`
    problem_type: ProblemType = "single_label_classification"
    layers: HeadLayers = "linear"  # linear is the published head
    pair_encoding: PairEncoding = "joint"
    has_answer_classifier: bool = False  # spans: a separate classifier predicts whether there is an answer
    pooling: str | None = None  # vectors: how tokens are pooled, one of `models/heads.py`
    graph: KagNetConfig | None = None  # choice: the head also reads the schema graph of every choice
    # regression: in memory the last layer is in this unit, so that numbers of any size are learned at the same rate; a
    # power of two, so that the weights in files, which are in units of 1, are exact
    scale: float = 1.0

    def __post_init__(self) -> None:
        if not self.output_type.is_configurable and (self.layers != "linear" or self.pair_encoding != "joint"):
            raise ValueError(f"other heads and pair encodings are for classification and regression, not {self.output}")
        if self.pair_encoding != "joint" and self.layers != "linear":
            raise ValueError(
                f"{self.pair_encoding} pairs need the linear head: leave out task.head= or task.pair_encoding="
            )

    @property
    def group_size(self) -> int:
        """Number of sequences per text or pair (not counting the choices of multiple choice)."""
        return 1 if self.pair_encoding == "joint" else 2

    @property
    def has_transformers_class(self) -> bool:
        return self.layers == "linear" and self.pair_encoding == "joint" and self.graph is None

    def fits(self, other: "HeadConfig") -> bool:
        """Whether a head for `other` can be used for this output: same layers, and same labels in the same order."""
        names = ("output", "problem_type", "layers", "pair_encoding", "graph") + (
            ("num_labels", "labels") if self.output_type.has_labels else ()
        )
        return all(getattr(self, name) == getattr(other, name) for name in names)

    @property
    def output_type(self) -> OutputType:
        return OUTPUT_TYPES[self.output]

    @property
    def is_grouped(self) -> bool:
        """Whether several adjacent sequences have one output: choices of a question, or a pair as two sequences."""
        return self.output_type.is_grouped or self.pair_encoding != "joint"

    @property
    def task_name(self) -> str:
        return TASK_NAMES[self.problem_type] if self.output_type.is_configurable else self.output_type.task_name


def reads_cls(head_config: HeadConfig) -> bool:
    """Whether a task reads only `[CLS]`, through a pooling layer."""
    return head_config.output_type.of_sequences and head_config.layers in ("linear", "mlp")


# --- Names in `transformers` ----------------------------------------------------------------------------------------

_OWN_FIELDS = tuple(field.name for field in fields(HeadConfig) if field.name not in ("labels", "scale"))


def hf_head_entries(head_config: HeadConfig) -> dict:
    """The entries of `config.json` for a task head: labels and problem type as in `transformers`, the rest under
    `hornbook_head`."""
    values = asdict(head_config)
    head = {name: values[name] for name in _OWN_FIELDS if values[name] is not None}
    hf_config: dict = {"hornbook_head": head}
    if head_config.output_type.has_labels:
        labels = head_config.labels or tuple(f"LABEL_{i}" for i in range(head_config.num_labels))
        hf_config["id2label"] = {str(i): label for i, label in enumerate(labels)}
        hf_config["label2id"] = {label: i for i, label in enumerate(labels)}
    if head_config.output_type.is_configurable:
        hf_config["problem_type"] = head_config.problem_type
    return hf_config


def read_head_config(hf_config: dict, output: str | None, num_labels: int) -> HeadConfig | None:
    """The head described by a `config.json`: by its `hornbook_head` or, for a folder written by `transformers`, by
    the `output` of its class and the `num_labels` rows of its head."""
    head = hf_config.get("hornbook_head") or {}
    if not head and output is None:
        return None
    num_labels = head.get("num_labels", num_labels)
    names = hf_config.get("id2label") or {}
    labels = tuple(str(names.get(str(i), f"LABEL_{i}")) for i in range(num_labels)) if names else ()
    if head:
        unknown = [name for name in head if name not in _OWN_FIELDS]
        if unknown:
            raise ValueError(f"its hornbook_head has '{unknown[0]}', which this version of Hornbook does not know")
        graph = {"graph": KagNetConfig(**head["graph"])} if "graph" in head else {}
        return HeadConfig(**head | graph, labels=labels)
    problem_type = hf_config.get("problem_type")
    if problem_type not in get_args(ProblemType):
        is_number = OUTPUT_TYPES[output].is_configurable and num_labels == 1
        problem_type = "regression" if is_number else "single_label_classification"
    return HeadConfig(output, num_labels, labels if OUTPUT_TYPES[output].has_labels else (), problem_type)
