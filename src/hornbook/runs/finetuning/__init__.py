"""Fine-tuning: trains a pre-trained model on labelled data into a run folder, once or as a sweep of several trials."""
