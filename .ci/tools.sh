#!/bin/sh
# Whether tools are there, and new enough, before anything is compiled: tools.sh rust go python rabbitmq sqs. Names all that are missing.
cd "$(dirname "$0")/.." || exit
code=0

# Says what is missing, and how to install it.
missing() {
    echo "$1: $2" >&2
    code=1
}

# Whether one version is at least another, by the first two numbers.
is_at_least() {
    left=${1#*.} right=${2#*.}
    [ "${1%%.*}" -gt "${2%%.*}" ] || { [ "${1%%.*}" -eq "${2%%.*}" ] && [ "${left%%.*}" -ge "${right%%.*}" ]; }
}

# A program, the version that it has, the oldest one that will do, and how to install it.
check() {
    if [ -z "$2" ]; then
        missing "$1 is there but does not say its version" "$4"
    elif ! is_at_least "$2" "$3"; then
        missing "$1 is version $2, and $3 or newer is needed" "$4"
    fi
}

rust() {
    install='install Rust with rustup (https://rustup.rs), which takes the version from rust-toolchain.toml'
    if ! command -v cargo >/dev/null; then
        missing 'cargo is missing' "$install"
    else
        # Without `2>/dev/null`: rustup says what it downloads, or why it cannot.
        check cargo "$(cargo --version | sed -n 's/^cargo \([0-9]*\.[0-9]*\).*/\1/p')" \
            "$(sed -n 's/^rust-version = "\([0-9]*\.[0-9]*\).*/\1/p' Cargo.toml)" "$install"
    fi
    command -v cc >/dev/null || missing 'cc is missing' 'install a C compiler (Debian: apt-get install build-essential)'
}

go_toolchain() {
    oldest=$(sed -n 's/^go \([0-9]*\.[0-9]*\).*/\1/p' tests/cluster/control-plane/go.mod)
    install="install Go $oldest or newer (https://go.dev/dl)"
    if ! command -v go >/dev/null; then
        missing 'go is missing' "$install"
    else
        # As in builds, which never download another toolchain.
        check go "$(GOTOOLCHAIN=local go env GOVERSION | sed -n 's/.*go\([0-9]*\.[0-9]*\).*/\1/p')" "$oldest" "$install"
    fi
}

python() {
    install='install Python 3.8 or newer (Debian: apt-get install python3)'
    if ! command -v python3 >/dev/null; then
        missing 'python3 is missing' "$install"
    else
        check python3 "$(python3 -c 'import sys; print("%d.%d" % sys.version_info[:2])')" 3.8 "$install"
    fi
}

# As root on Debian it is installed when it is needed.
rabbitmq() {
    for folder in /usr/lib/rabbitmq/bin /usr/lib64/rabbitmq/bin /opt/rabbitmq/sbin; do
        [ ! -e "$folder/rabbitmq-server" ] || return
    done
    [ "$(id -u)" = 0 ] && [ -e /usr/bin/apt-get ] ||
        missing 'RabbitMQ is missing' 'install the package rabbitmq-server (Debian: apt-get install rabbitmq-server)'
}

sqs() {
    python3 -c 'import sys, venv, ensurepip; assert sys.version_info >= (3, 10)' 2>/dev/null ||
        missing 'the SQS server needs Python 3.10 or newer with its module venv' 'install both (Debian: apt-get install python3 python3-venv)'
}

for tool in "$@"; do
    case $tool in
        go) go_toolchain ;;
        rust | python | rabbitmq | sqs) "$tool" ;;
        *) missing "$tool" 'no such tool is checked here' ;;
    esac
done
exit $code
