"""Knowledge graphs: building a graph folder from triples, WordNet or Wikidata ids, finding paths between entities,
linking texts to entities, and (in `embedding/`) vectors of entities. Models that read a graph live elsewhere."""
