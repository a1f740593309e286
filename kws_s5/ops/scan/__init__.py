"""The scan: states of a diagonal linear recurrence, forward, backward, with gradients."""
