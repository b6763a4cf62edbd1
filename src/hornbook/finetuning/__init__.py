"""Puts a pre-trained model, labelled data, a task and the loop together into one run folder."""
