"""Knowledge graphs: building a graph folder from triples, WordNet or Wikidata ids, finding paths between entities,
linking texts to entities and vectors of entities (`embedding/`). The models that read a graph are in `models`."""
