"""From raw text to sentences and tokens: tokenizers, their training, how well they fit, sentence splitting."""
