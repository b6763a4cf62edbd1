"""Imports and tests leave few cycles, but by default Python searches for them so often that importing torch takes a
fifth longer. To be imported before all else."""

import gc

gc.set_threshold(100_000, 20, 100)
