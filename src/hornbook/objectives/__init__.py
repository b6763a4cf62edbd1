"""Pre-training objectives: MLM, CLM, RTD and sentence tasks. Each prepares the inputs of a step and sums its losses."""
