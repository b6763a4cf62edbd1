"""Tasks as text: a GPT is shown a description and some examples, and what it goes on with is scored."""
