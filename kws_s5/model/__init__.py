"""From input to outputs: fronts, S5 layers, heads, and the model that chains them."""

from kws_s5.model.front import Features
from kws_s5.model.official import load_official
from kws_s5.model.sequence import SequenceModel, build_model

__all__ = ["Features", "SequenceModel", "build_model", "load_official"]
