"""Items given the sums of subjects: conditional maximum likelihood."""
