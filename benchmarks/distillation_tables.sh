#!/bin/bash
# The tables of distillation in RESULTS.md, from a pre-trained encoder and a corpus with its vocabulary:
#
#     bash benchmarks/distillation_tables.sh MODEL CORPUS TASKS OUT [half] [quarter] [distilbert]
#
# MODEL is trained with MLM (OUT/base), students are distilled from it on plain text, then distillation.py trains and scores
# teachers and students on the tasks. Without names, all three tables are made: a student of half the layers, one of a
# quarter of the width, and DistilBERT's, whose students differ on plain text and are only fine-tuned (and, as `taught`,
# the full one, distilled on the tasks too). The same command resumes where it was stopped. Runs on plain text fill
# a GPU and come one after another; those on tasks do not, and PROCESSES of them run at once, which pays with CUDA's MPS.
set -e -o pipefail
[ $# -ge 4 ] || { echo "usage: $0 MODEL CORPUS TASKS OUT [half] [quarter] [distilbert]" >&2; exit 2; }
model=$(realpath "$1") corpus=$(realpath "$2") tasks=$(realpath "$3") out=$4
shift 4
tables=${*:-half quarter distilbert}
for name in $tables; do
    [[ " half quarter distilbert " == *" $name "* ]] || { echo "'$name' is none of half, quarter, distilbert" >&2; exit 2; }
done
here=$(dirname "$(realpath "$0")")
seeds=${SEEDS:-3} processes=${PROCESSES:-14} tokens=${TOKENS:-32768} length=${LENGTH:-256} examples=${EXAMPLES:-4000}
# If the base's layers do not fit the student, no-general-stage is left out.
ablations=full,no-general-stage,no-task-stage,no-augmentation,no-embeddings,no-prediction-layer
ablations=$ablations,no-attention,no-hidden,neither-attention-nor-hidden,random-start
mkdir -p "$out"
cd "$out"

on_plain_text() { # a command with its model, the steps, then other options
    local steps=$3
    python -m hornbook "$1" "$2" --steps "${STEPS:-$steps}" --corpus "$corpus" --resume --set batch.tokens="$tokens" \
        --set data.length="$length" --set data.short_fraction=0 --set validation.every_steps=1500 \
        --set checkpoint.keep_optimizer=false --set runtime.loader_workers="${LOADERS:-10}" "${@:4}"
}

table() { # name of the table, students, arms
    python "$here"/distillation.py --base base --data "$tasks" --out "$1.json" --seeds "$seeds" --examples "$examples" \
        --copies 1 --processes "$processes" --set epochs=4 --set objective.earlier_epochs=6 \
        --set squad2:task.max_length=256 --set squad2:objective.earlier_epochs=3 "${@:2}" | tee "$1.log"
}

with_teachers_of() { # the runs of teachers, and the copies of their examples, are used by every table
    for other in half quarter distilbert; do
        if [ -d $other.jobs/teacher ] && [ ! -d "$1".jobs ]; then
            mkdir "$1".jobs
            cp -rl $other.jobs/teacher "$1".jobs/
            [ ! -d $other.jobs/copies ] || cp -rl $other.jobs/copies "$1".jobs/
        fi
    done
}

on_plain_text pretrain bert-base 3500 --from "$model" --out base --set objective.sentence=none --set optimizer.lr=3e-4

for name in $tables; do
    with_teachers_of "$name"
    case $name in
    half)
        on_plain_text distill base 6000 --student distilbert --recipe tinybert --out half-on-text --set optimizer.lr=5e-4
        table half --general half-on-text --arms $ablations
        ;;
    quarter)
        on_plain_text distill base 4500 --student tinybert-4 --out quarter-on-text --set optimizer.lr=1e-3 \
            --set model.num_layers=6 --set model.width=96 --set model.num_heads=12 --set model.inner_width=384
        table quarter --general quarter-on-text --arms $ablations
        ;;
    distilbert)
        follows="distill base 1500 --student distilbert --recipe distilbert --set optimizer.lr=5e-4"
        on_plain_text $follows --out triple
        on_plain_text $follows --out no-scores --set objective.without=logits
        on_plain_text $follows --out no-cosine --set objective.without=hidden
        on_plain_text $follows --out no-masked-tokens --set objective.hard_label_weight=0
        on_plain_text $follows --out random --set objective.student_init=random
        table distilbert --general triple --general no-scores=no-scores --general no-cosine=no-cosine \
            --general no-masked-tokens=no-masked-tokens --general random-on-plain-text=random \
            --arms no-task-stage --others-as no-task-stage
        with_teachers_of taught
        table taught --general triple --arms full,scores-and-labels
        ;;
    esac
done
