"""Tasks as text: a GPT is prompted with a description and some examples, and its continuation is scored."""
