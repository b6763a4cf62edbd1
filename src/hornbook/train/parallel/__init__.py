"""Training with several processes (ranks), started by `torchrun`: their rank and number (`torchrun.py`), how they agree
and add up (`ranks.py`), sums of gradients (`gradients.py`), and weights spread over them (`sharding.py`). Models,
objectives and tasks know nothing of it."""
