#!/usr/bin/env python3
"""Finds what reads conditions where decisions are made: conditions inform and never steer (FW-30)."""

import re

# Where it is decided and acted; what reports (status) reads what was reported before.
DECIDES = re.compile(r"^(controller/src/(?!reconcile/(status(/|\.rs)|model/reported))|webhook/src/|shared/src/)")
# Conditions of other objects: pods, workloads, ScaledObjects, HPAs, CRDs.
OF_OTHERS = {"controller/src/reconcile/model/availability.rs"}
OTHERS = re.compile(r"^controller/src/record/(?!actor)")
READS = re.compile(r"\.\s*conditions\b")


def readers(name, text):
    """Numbers of the lines of a file of code that read conditions of actors."""
    if not DECIDES.match(name) or name in OF_OTHERS or OTHERS.match(name):
        return []
    code = text.partition("#[cfg(test)]")[0]
    code = re.sub(r"//[^\n]*", "", code)
    return [code.count("\n", 0, match.start()) + 1 for match in READS.finditer(code)]
