"""Reports for tensors on a GPU, drawn there: ChaCha20 words and the sampler's tables, as one kernel or in torch."""
