"""Long Range Arena and pixel sequences: official releases or generated data -> Splits. Knows no model."""

from kws_s5.config import LraData


def build(config: LraData):  # noqa: ANN201
    """Splits of ``config.task``: see tasks.py, imported when used because processes that generate need no torch."""
    from kws_s5.data.lra.tasks import build as build_task

    return build_task(config)
