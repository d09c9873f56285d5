#!/bin/bash
# The first process of a sandbox (sandbox.sh): mounts, cgroups and a network, then the command.
set -e
address=203.0.113.1
hostname real
mount -t tmpfs tmpfs /run
mkdir -p "$ASYA_SANDBOX"/{var,work,settings,tmp}
export TMPDIR=$ASYA_SANDBOX/tmp
mount -t overlay -o "lowerdir=/var,upperdir=$ASYA_SANDBOX/var,workdir=$ASYA_SANDBOX/work" overlay /var

# A kubelet requires these settings. Bind mounts satisfy it without changing the machine's kernel.
setting() {
    local file=$ASYA_SANDBOX/settings/${1##*/}
    echo "$2" > "$file"
    mount --bind "$file" "/proc/sys/$1"
}
setting vm/overcommit_memory 1
setting kernel/panic 10
setting kernel/panic_on_oops 1

# Mount each hierarchy again, so that its root is the sandbox's cgroup.
for mounted in $(awk '$5 ~ "^/sys/fs/cgroup/" {print $5}' /proc/self/mountinfo); do
    umount "$mounted"
    case ${mounted##*/} in
        unified) mount -t cgroup2 cgroup2 "$mounted" ;;
        systemd) mount -t cgroup -o none,name=systemd cgroup "$mounted" ;;
        *) mount -t cgroup -o "${mounted##*/}" cgroup "$mounted" ;;
    esac
done
mount --make-rshared /

# The pod bridge with the node's address, and a route to the Service range.
printf 'nameserver %s\nsearch cluster.local\n' "$address" > "$ASYA_SANDBOX/resolv.conf"
mount --bind "$ASYA_SANDBOX/resolv.conf" /etc/resolv.conf
ip link set lo up
ip link add cni0 type bridge
ip addr add "$address/25" dev cni0
ip link set cni0 up
ip route add 198.51.100.0/24 dev cni0
echo 1 > /proc/sys/net/ipv4/ip_forward
set +e
"$@"
exit $?
