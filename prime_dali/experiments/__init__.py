"""The paper's experiments: main table, similarity, embedding, ablation, strength, sample complexity and cost."""
