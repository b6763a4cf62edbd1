"""Fine-tuning: trains a pre-trained model on labelled data into a run folder, once, several times or as a search."""
