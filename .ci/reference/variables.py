"""Environment variables of the sidecar and of the runtime."""

import re

from . import markdown, rust, source

SIDECAR = "wire/src/env.rs"
READERS = ["sidecar/src/config.rs", "sidecar/src/config/sqs.rs"]
RUNTIME = "controller/runtime/asya_runtime.py"
ADAPTERS = "controller/runtime/asya_adapters.py"

# Variables of other projects, which mean here what they mean there.
FOREIGN = {
    "AWS_REGION": "Region of the queues, if ASYA_AWS_REGION is not set.",
    "AWS_DEFAULT_REGION": "Region of the queues, if neither ASYA_AWS_REGION nor AWS_REGION is set.",
    "OTEL_EXPORTER_OTLP_ENDPOINT": "URL of an OpenTelemetry collector that receives traces over OTLP/HTTP; without it, nothing is traced.",
    "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "Like OTEL_EXPORTER_OTLP_ENDPOINT, but the complete URL; takes precedence.",
    "OTEL_EXPORTER_OTLP_HEADERS": "Headers of requests to the collector, as NAME=VALUE, separated by commas.",
    "OTEL_SERVICE_NAME": "Service name in traces; by default the actor's name.",
    "OTEL_TRACES_SAMPLER": "Sampler of traces: always_on, always_off or traceidratio, each also with the prefix parentbased_; by default parentbased_always_on.",
    "OTEL_TRACES_SAMPLER_ARG": "Ratio of sampled traces, from 0 to 1; by default 1.",
}

# Not beside the code that reads them: a changed comment in a script that pods mount would roll them all.
SCRIPTS = {
    RUNTIME: {
        "ASYA_HANDLER": ("", "The handler, as module.function or module.Class.method; required."),
        "ASYA_HANDLER_MODE": ("payload", "What the handler takes and returns: payload, or the whole envelope."),
        "ASYA_CONCURRENCY": ("1", "Number of messages that are handled at the same time, from 1 to 256; by default 8 with the adapters asya_adapters.openai_*."),
        "ASYA_SOCKET_DIR": ("/var/run/asya", "Directory of the socket to the sidecar; set by the operator."),
        "ASYA_SOCKET_NAME": ("asya-runtime.sock", "File name of the socket in that directory."),
        "ASYA_SOCKET_CHMOD": ("0o666", "File mode of the socket, in octal; empty leaves it to the umask."),
        "ASYA_CHUNK_SIZE": ("65536", "Bytes that are read from the socket at a time."),
        "ASYA_ENABLE_VALIDATION": ("true", "Checks messages and, in mode envelope, what the handler returns."),
        "ASYA_LOG_LEVEL": ("INFO", "Log level: DEBUG, INFO, WARNING or ERROR."),
    },
    ADAPTERS: {
        "ASYA_TARGET_URL": ("", "URL of the model's server; set by the operator (`spec.runtime.targetURL`)."),
        "ASYA_TARGET_PATH": ("", "With asya_adapters.rest: what follows that URL."),
        "ASYA_TARGET_MODEL": ("", "Name of the model, for payloads that name none; by default the first that the server lists."),
        "ASYA_TARGET_TIMEOUT": ("300", "Seconds for the request of one message; 0 means no limit. The operator sets it to timeout.processing."),
        "ASYA_TARGET_READY_TIMEOUT": ("3000", "Seconds that the adapter waits for the model at startup."),
        "ASYA_TARGET_TOKEN": ("", "Sent to the server as bearer token."),
        "ASYA_SOCKET_DIR": ("/var/run/asya", "As above."),
    },
}


def of_sidecar():
    """Name, default and meaning of each variable that the sidecar reads."""
    text = source.text(SIDECAR)
    constants = {item.name: item for item in rust.strings(text)}
    defaults = {}
    for name, value in default_values(text):
        defaults.setdefault(name, []).append(value)
    for name in re.findall(r"\w+", re.search(r"const ALL: [^=]*= \[(.*?)\];", text, re.DOTALL).group(1)):
        item = constants[name]
        yield item.value, ", ".join(defaults.get(name, [])), source.require(item.description, SIDECAR, name)
    read = {name for path in READERS for name in re.findall(r'"((?:OTEL|AWS)_[A-Z_]+)"', source.text(path))}
    for name in sorted(read):
        yield name, "", source.require(FOREIGN.get(name), "variables.py", name)


def default_values(text):
    """Constants whose doc comment says `Default of [`NAME`]`, by that name; what follows the name is a restriction."""
    pattern = re.compile(r"pub const DEFAULT_\w+: [^=]+ = (.*);$")
    for match, comment in rust.declarations(text.splitlines(), pattern):
        restriction = re.search(r"` (with.*)\.$", comment[0])
        for name in re.findall(r"`(\w+)`", comment[0]):
            yield name, markdown.code(literal(match.group(1))) + (" " + restriction.group(1) if restriction else "")


def literal(text):
    """A Rust literal as users write it."""
    duration = re.match(r"Duration::from_(secs|mins)\((\d+)\)", text)
    if duration:
        return duration.group(2) + duration.group(1)[0]
    shifted = re.match(r"(\d+) << 20", text)
    if shifted:
        return shifted.group(1) + "Mi"
    return text.strip('"') if text.startswith('"') else text.replace("_", "")


def of_script(path):
    """Name, default and meaning of each variable that a script of the runtime reads."""
    text = source.text(path)
    read = set(re.findall(r'environ(?:\.get\(|\[)"(ASYA_\w+)"', text)) | set(re.findall(r'\b(?:seconds|parse_\w+)\("(ASYA_\w+)"', text))
    for name in sorted(read - set(SCRIPTS[path])):
        raise source.Undescribed("%s reads %s, which variables.py does not describe" % (path, name))
    for name in sorted(set(SCRIPTS[path]) - read):
        raise source.Undescribed("%s does not read %s, which variables.py describes" % (path, name))
    for name, (default, description) in SCRIPTS[path].items():
        yield name, markdown.code(default), description
