"""Data augmentation: copies of training examples with words replaced by similar words, which a masked-language model
or word vectors propose."""
