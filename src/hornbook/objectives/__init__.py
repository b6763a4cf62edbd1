"""The losses of models: MLM, CLM, RTD, sentence tasks, entities, distillation and similarity. Each objective
prepares the inputs of a step and sums its losses."""
