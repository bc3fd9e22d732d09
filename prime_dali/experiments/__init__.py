"""The paper's experiments beside the main tables: similarity and embeddings, ablations, strength, samples and cost."""
