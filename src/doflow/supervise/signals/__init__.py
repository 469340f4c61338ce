"""Signals: how the layers of a supervised pipeline talk, one JSON file each. `types` says what there is to say, `store`
writes, finds and files signals, `watch` sleeps until there is news."""
