"""From batches to a trained model: the only training code in the repository."""
