"""Random sentences: varied, of known words, and silent about what must not be said."""

import numpy as np
import pytest

from kws_s5.data.synthetic.sentences import KINDS, PATTERNS, sentence, vocabulary
from kws_s5.errors import UserError


def spoken(n: int, **options: object) -> list[str]:
    rng = np.random.default_rng(0)
    return [sentence(rng, **options) for _ in range(n)]


def test_same_seed_same_sentences_and_hardly_any_twice() -> None:
    first = spoken(300)
    assert first == spoken(300) and len(set(first)) > 295
    assert all(3 <= len(text.split()) <= 40 for text in first)


def test_all_words_come_from_the_vocabulary_and_most_of_it_is_heard() -> None:
    heard = {word.strip(",") for text in spoken(3000) for word in text.split()}
    assert heard <= set(vocabulary()) and len(heard) > 0.95 * len(vocabulary()) > 600


def test_a_kind_of_word_never_stays_unreplaced() -> None:
    assert not any(set(text.split()) & set(KINDS) for text in spoken(300))
    assert all(word in KINDS or word in vocabulary() for pattern in PATTERNS for word in pattern.split())


@pytest.mark.parametrize("without", [{"on", "off", "the", "she"}, {"of course", "the table"}, {"of", "is", "it", "if"}])
def test_what_must_not_be_said_is_not_said(without: set[str]) -> None:
    for text in spoken(2000, without=without):
        bare = text.replace(",", "")
        assert not any(f" {phrase} " in f" {bare} " for phrase in without), text


def test_with_nothing_left_to_say_there_is_an_error() -> None:
    with pytest.raises(UserError, match="fewer"):
        spoken(1, without=set(vocabulary()))
