#!/usr/bin/env python3
"""Finds texts that tell users to delete an actor without having said how to keep its queue and messages (QUE-48)."""

import re

# What tells to delete an actor, and not just that one is deleted.
ADVICE = re.compile(
    r"\b(?:[Dd]elete|[Rr]emove|[Rr]ecreate)(?: and create)? (?:(?:that|the|this|an|your|all|each) )?(?:AsyncActors?|[Aa]ctors?)\b"
    r"|[Rr]epair or delete"
    r"|\bdelete (?:asya|asyncactors?|asyncactor)\b"
    r"|delete (?:crd|customresourcedefinitions?) asyncactors"
)
# What keeps messages.
KEEPS = re.compile(r"Retain|DeleteIfEmpty|skip-queue-deletion")
BEFORE = 900  # characters in which that must have been said


def careless(text):
    """Each such advice, with the number of its line."""
    found = []
    flat = text.replace("\n", " ")
    for match in ADVICE.finditer(flat):
        if not KEEPS.search(flat, max(0, match.start() - BEFORE), match.start()):
            line = text.count("\n", 0, match.start()) + 1
            found.append((line, text.splitlines()[line - 1].strip()))
    return found


def shown(path, text):
    """What users can come to see of a file: of code only its texts, and none of its tests."""
    if path.endswith(".rs"):
        text = text.partition("#[cfg(test)]")[0]
        lines = text.splitlines()
        return "\n".join("" if line.lstrip().startswith("//") and not line.lstrip().startswith("///") else line for line in lines)
    return text
