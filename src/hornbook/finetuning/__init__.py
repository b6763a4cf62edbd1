"""Fine-tunes a pre-trained model on labelled data into a run folder. Also holds what fine-tuning is compared with:
probes, baselines and label curves."""
