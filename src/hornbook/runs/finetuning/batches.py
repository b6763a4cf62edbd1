"""The batches of a fine-tuning run: batch k is a function of the seed and k alone."""

import math

import numpy as np

from hornbook.batch import Batch
from hornbook.tasks.features import Features
from hornbook.train.randomness import seed_of


class TaskBatches:
    """Every unit once per epoch, in an order that depends on the seed and the epoch. The last batch of an epoch may be
    smaller."""

    def __init__(self, features: Features, batch_size: int, seed: int):
        self.features, self.batch_size, self.seed = features, batch_size, seed
        self.steps_per_epoch = math.ceil(features.num_units / batch_size)
        self._epoch, self._order = -1, np.zeros(0, np.int64)

    def __call__(self, number: int) -> Batch:
        epoch, within = divmod(number, self.steps_per_epoch)
        if epoch != self._epoch:
            self._order = np.random.default_rng(seed_of(self.seed, epoch, "order")).permutation(self.features.num_units)
            self._epoch = epoch
        units = self._order[within * self.batch_size : (within + 1) * self.batch_size].tolist()
        return self.features.batch(units, numbered=True)
