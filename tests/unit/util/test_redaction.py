"""Secrets taken out of text: known ones by their value, unknown ones by their shape."""

from __future__ import annotations

import pytest

from doflow.util.text import Redactor


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("key sk-ant-api03-abcdefghijklmnop.", "key [redacted: api key]."),
        ("AKIAABCDEFGHIJKLMNOP", "[redacted: aws key]"),
        ("git clone https://me:hunter22@host/x", "git clone https://[redacted: password]@host/x"),
        ("Authorization: bearer abcdefghijklmnop", "Authorization: bearer [redacted: bearer]"),
        ("eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0.abcdefghij", "[redacted: web token]"),
        ("a -----BEGIN RSA PRIVATE KEY-----\nMII\nx\n-----END RSA PRIVATE KEY----- b", "a [redacted: private key] b"),
        ("-----BEGIN PRIVATE KEY-----\nMII without an end", "[redacted: private key]"),
        (
            "a risk-assessment of the task-list, https://host:80/x@y",
            "a risk-assessment of the task-list, https://host:80/x@y",
        ),
        ("skip-this-and-that-and-more", "skip-this-and-that-and-more"),
    ],
)
def test_what_looks_like_a_secret_is_taken_out_and_words_are_not(text: str, kept: str) -> None:
    assert Redactor({}).text(text) == kept


def test_values_of_secret_variables_go_longest_first_and_short_values_and_paths_stay() -> None:
    environ = {
        "A_TOKEN": "12345678",
        "B_KEY": "12345678-more",
        "PIN_KEY": "1234",
        "SSH_AUTH_SOCK": "/run/x",
        "HOME": "12345678",
    }

    assert (
        Redactor(environ).text("12345678-more 12345678 1234 /run/x")
        == "[redacted: B_KEY] [redacted: A_TOKEN] 1234 /run/x"
    )


def test_a_private_key_is_found_over_the_lines_of_a_log() -> None:
    lines = ["before\n", "-----BEGIN EC PRIVATE KEY-----\n", "MII\n", "-----END EC PRIVATE KEY-----\n", "after\n"]

    assert "".join(Redactor({}).lines(lines)) == "before\n[redacted: private key]\nafter\n"
