"""Flags and environment variables of all programs."""

from . import markdown, rust, source, variables

PROGRAMS = {"asya-controller": ("controller/src/app/args.rs", "Args"), "asya-webhook": ("webhook/src/args.rs", "Args")}
NESTED = {
    "InstallationFlags": "process/src/flags.rs",
    "CertificateFlags": "controller/src/certificates/flags.rs",
    "WebhookConfigFlags": "controller/src/admission/flags.rs",
}

INTRODUCTION = """\
The [chart's values](values.md) set what an installation needs of these; actors set variables of their sidecar and
runtime in `spec.sidecar.env`, `spec.runtime.env` and their pod template. A flag takes precedence over the variable of
the same meaning. An invalid value prevents startup with an error that names it."""


def page():
    blocks = [INTRODUCTION]
    for program, (path, struct) in PROGRAMS.items():
        blocks += ["## " + program, markdown.table(["Flag", "Variable", "Default", "Meaning"], of_program(path, struct))]
    blocks += ["## asya-sidecar", listed(variables.of_sidecar())]
    blocks += ["## asya-runtime", listed(variables.of_script(variables.RUNTIME))]
    blocks += ["### Adapters", listed(variables.of_script(variables.ADAPTERS))]
    sources = [path for path, _ in PROGRAMS.values()] + sorted(NESTED.values()) + [variables.SIDECAR, variables.RUNTIME, variables.ADAPTERS]
    return markdown.page("Flags and environment variables", sources, *blocks)


def of_program(path, struct):
    found, nested = rust.flags(source.text(path), struct)
    for flag in found:
        source.require(flag.description, path, flag.flag)
        yield [markdown.code(flag.flag), markdown.code(flag.variable), markdown.code(flag.default), markdown.escaped(flag.description)]
    for each in nested:
        yield from of_program(NESTED[each], each)


def listed(found):
    rows = ([markdown.code(name), default, markdown.escaped(description)] for name, default, description in found)
    return markdown.table(["Variable", "Default", "Meaning"], rows)
