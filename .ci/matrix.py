#!/usr/bin/env python3
"""Runs the core scenarios on several versions of Kubernetes and KEDA, each built from its Go modules.

Arguments are combinations `KUBERNETES/KEDA`, such as `1.30/2.16`; `default` is the version that `make test` uses. Every combination is installed by
helm 3 and by helm 4. The last line is `N passed, N failed`.
"""

import os
import sys

from parts import Runner, show, summary

TARGET = "test-core"
# What selects a version when the parts of a cluster are built (tests/src/build/go.rs).
VARIABLES = ("ASYA_TEST_KUBERNETES", "ASYA_TEST_KEDA")
DEFAULT = "default"


def environment(combination):
    """The variables of a combination; empty ones select the default."""
    versions = combination.split("/")
    if len(versions) != len(VARIABLES) or not all(versions):
        raise ValueError("%s is not KUBERNETES/KEDA, such as 1.30/2.16 or %s/2.16" % (combination, DEFAULT))
    return {name: "" if version == DEFAULT else version for name, version in zip(VARIABLES, versions)}


def run(runner, combinations):
    """A part for each combination."""
    wanted = [(combination, environment(combination)) for combination in combinations]
    parts = []
    for combination, variables in wanted:
        os.environ.update(variables)
        show(b"\n== Kubernetes/KEDA %s" % combination.encode())
        parts.append(runner.run(TARGET, show)._replace(name=combination))
    return parts


def main(arguments):
    if not arguments:
        sys.exit("which versions? For example: make test-matrix MATRIX='1.30/2.16 default/2.16'")
    try:
        return summary(run(Runner(), arguments))
    except ValueError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit(130)
