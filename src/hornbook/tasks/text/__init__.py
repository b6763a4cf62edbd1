"""Tasks as text: task files, their data, the prompts made of them, and the metrics of answers."""
