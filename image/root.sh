#!/bin/sh
# Lays out an image's files in an empty folder: root.sh ROOT PROGRAM...
# The programs, the libraries that they load, the certificate authorities that brokers are checked against, and the user that runs them: no shell, no package.
set -eu

root=$1
shift
authorities=/etc/ssl/certs/ca-certificates.crt
if [ ! -f "$authorities" ]; then
    echo "$authorities is missing: install it (Debian: apt-get install ca-certificates)" >&2
    exit 1
fi

mkdir -p "$root/etc/ssl/certs"
for program; do
    install -m 0755 "$program" "$root/${program##*/}"
    # "name => path (address)" for a library, "path (address)" for what loads it; the kernel's own has no path
    ldd "$program" | awk '$2 == "=>" && $3 ~ "^/" { print $3 } $1 ~ "^/" { print $1 }'
done | sort -u | while read -r library; do
    mkdir -p "$root${library%/*}"
    install -m 0755 "$library" "$root$library"
done
install -m 0644 "$authorities" "$root$authorities"
echo 'asya:x:65532:65532::/:/sbin/nologin' > "$root/etc/passwd"
echo 'asya:x:65532:' > "$root/etc/group"
# Without it the C library asks the name server before it looks into /etc/hosts.
echo 'hosts: files dns' > "$root/etc/nsswitch.conf"
