"""A step made concrete: parameters in its paths, one step per item."""

from __future__ import annotations

import pytest

from doflow.flow import expansion
from doflow.flow.model import Flow, Prompt, Read, Step
from doflow.util.errors import DoflowError

EACH = Step("part", prompt=Prompt("Write {item}."), makes=("parts/{item}.md",), foreach=("Alpha", "beta"))
FILED = Step("part", makes=("{item_name}.md",), reads=(Read("in/{index}.md"),), foreach="items.yaml")


def test_parameters_stand_in_every_path_of_every_step():
    step = Step("one", makes=("{topic}.md",), reads=(Read("/docs/{topic}/*.md"),), needs=(Read("{topic}/x"),),
                writes=("/src/{topic}/**",), phases="{topic}-tasks.md", phases_or=("{topic}2.md",))  # fmt: skip

    made = expansion.expand_flow(Flow("f", steps=(step, Step("two"))), {"topic": "keys"}).steps

    assert (made[0].makes, made[0].reads[0].path, made[0].needs[0].path) == (("keys.md",), "/docs/keys/*.md", "keys/x")
    assert (made[0].writes, made[0].phases, made[0].phases_or) == (("/src/keys/**",), "keys-tasks.md", ("keys2.md",))
    assert made[1] == Step("two")


def test_a_steps_own_parameters_come_before_the_runs_and_may_be_made_of_them():
    step = Step("one", makes=("{topic}-{goal}.md",), params=(("topic", "{area}-keys"),))

    assert expansion.expand_step(step, {"topic": "no", "area": "web", "goal": "g"}).makes == ("web-keys-g.md",)


@pytest.mark.parametrize("value", ["../out", "a/../../b", "a\nb"])
def test_a_value_cannot_lead_a_path_out_of_its_place(value):
    with pytest.raises(DoflowError, match="outside its folder"):
        expansion.expand_step(Step("one", makes=("{topic}/x.md",)), {"topic": value})


def test_a_list_in_the_flow_gives_a_step_per_item_in_its_order():
    made = expansion.expand_items(EACH, None, "")

    assert [step.id for step in made] == ["part:alpha", "part:beta"]
    assert [step.makes for step in made] == [("parts/Alpha.md",), ("parts/beta.md",)]
    assert [dict(step.params) for step in made] == [{"index": "1", "item": "Alpha"}, {"index": "2", "item": "beta"}]
    assert all(step.foreach == () for step in made)


@pytest.mark.parametrize(
    "text",
    [
        "- {name: a, size: 1}\n- {name: b}\n",
        "parts:\n  - {name: a, size: 1}\n  - {name: b}\n",
        '[{"name": "a", "size": 1}, {"name": "b"}]',
    ],
    ids=["list", "one key", "json"],
)
def test_a_file_gives_a_step_per_item_with_its_words(text):
    made = expansion.expand_items(FILED, text, "items.yaml")

    assert [(step.id, step.makes, step.reads[0].path) for step in made] == [
        ("part:a", ("a.md",), "in/1.md"),
        ("part:b", ("b.md",), "in/2.md"),
    ]
    words = dict(made[0].params)
    assert (words["item_name"], words["item_size"], words["item"]) == ("a", "1", '{"name": "a", "size": 1}')


def test_items_that_would_have_one_name_are_told_apart():
    step = Step("part", makes=("{index}.md",), foreach=("A b", "a/B", "!!"))

    assert [found.id for found in expansion.expand_items(step, None, "")] == ["part:a-b", "part:a-b-2", "part:3"]


@pytest.mark.parametrize(
    ("text", "words"),
    [(None, "does not exist"), ("just words", "not a list"), ("a: 1\nb: 2\n", "not a list"), ("- [", "items.yaml")],
    ids=["none", "words", "mapping", "broken"],
)
def test_a_file_that_holds_no_items_is_refused_by_name(text, words):
    with pytest.raises(DoflowError, match=words):
        expansion.expand_items(FILED, text, "specs/001/items.yaml")


def test_an_item_cannot_write_outside_of_the_runs_folder():
    with pytest.raises(DoflowError, match="outside its folder"):
        expansion.expand_items(Step("part", makes=("{item}.md",), foreach=("../../etc",)), None, "")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("- x\n- 3\n", "item 1 of items.yaml is not a mapping: 'x'"),
        ("- {name: a}\n- {size: 3}\n", "item 2 of items.yaml has no key 'name'"),
        ("- {name: [a]}\n", "item 1 of items.yaml has no single value for .name."),
        ("- {name: Home}\n- {name: home}\n- {name: Home}\n", "items 1 and 3 of items.yaml would both make Home.md"),
        ("- {name: a}\n- {name: ./a}\n", "items 1 and 2 of items.yaml would both make a.md"),
    ],
    ids=["texts", "a key less", "a list", "twice", "twice by another way"],
)
def test_items_that_lack_a_word_or_make_the_same_file_are_refused(text, words):
    with pytest.raises(DoflowError, match=words):
        expansion.expand_items(FILED, text, "items.yaml")


def test_a_word_that_the_run_knows_is_not_asked_of_an_item():
    step = Step("part", prompt=Prompt("{item_tone} {item_name}"), makes=("{item_name}.md",), foreach="items.yaml")

    assert len(expansion.expand_items(step, "- {name: a}\n", "items.yaml", known={"item_tone"})) == 1


def test_a_name_that_was_made_up_to_tell_items_apart_is_never_taken_twice():
    step = Step("part", makes=("{index}.md",), foreach=("a", "a-3", "a"))

    assert [found.id for found in expansion.expand_items(step, None, "")] == ["part:a", "part:a-3", "part:a-3-3"]
