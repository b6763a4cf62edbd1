"""From raw text to sentences and tokens: tokenizers, tokenizer training, vocabulary fit, sentence splitting."""
