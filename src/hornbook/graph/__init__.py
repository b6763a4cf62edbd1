"""Knowledge graphs: building a graph folder from triples, WordNet or Wikidata ids, finding paths between entities,
linking texts to entities, vectors of entities (`embedding/`) and questions grounded in a graph (`grounding.py`).
The models that read a graph are in `models`."""
