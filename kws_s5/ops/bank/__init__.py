"""The bank's frame powers: samples in, mean power of every mode in every frame out."""
