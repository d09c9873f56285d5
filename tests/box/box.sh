#!/bin/bash
# Runs a command where a kubelet can work, and leaves nothing of it: box.sh COMMAND...
#
# The command has mount, network, process, host name, IPC and cgroup namespaces of its own. It reaches nothing outside but files, and whatever it
# started ends with it. Needs root and version 1 of cgroups. The folder ASYA_BOX is its to write into. What stays of it all the same is told, and
# fails a command that did not.
set -u
here=$(cd "$(dirname "$0")" && pwd)
root=${TMPDIR:-/tmp}

# The folders of this process in each cgroup hierarchy of version 1, as its mounts show them, and in that of version 2 beside them, which a
# container's runtime uses where it is there.
hierarchies() {
    while IFS=: read -r _ controllers path; do
        controllers=${controllers#name=}
        mounted=/sys/fs/cgroup/${controllers:-unified}
        [ ! -d "$mounted" ] || echo "$mounted${path%/}"
    done < /proc/self/cgroup
}

# Removes what a box leaves: its cgroups, once its processes are gone, and its folder. Says what of these and of its mounts stays.
remove() {
    local groups stays
    readarray -t groups < "$1/cgroups"
    for _ in {1..100}; do
        [ ${#groups[@]} = 0 ] && break
        find "${groups[@]}" -depth -type d -exec rmdir {} + 2>/dev/null
        ls -d "${groups[@]}" 2>/dev/null | grep -q . || break
        sleep 0.1
    done
    stays=$({ [ ${#groups[@]} = 0 ] || ls -d "${groups[@]}" 2>/dev/null; grep -F " $1/" /proc/self/mountinfo; } | tr '\n' ' ')
    # The folder of what stays is for the next one, which tries again.
    [ -z "$stays" ] || { echo "box.sh: this stays: $stays" >&2; return 1; }
    rm -rf "$1"
}

# One at a time, so that nobody takes a box for dead whose lock is not held yet.
exec 8> "$root/asya-boxes.lock"
flock 8
for folder in "$root"/asya-box-*; do
    [ -e "$folder/lock" ] && flock --nonblock "$folder/lock" true && remove "$folder"
done
ASYA_BOX=$(mktemp -d "$root/asya-box-XXXXXX") || exit 1
export ASYA_BOX
touch "$ASYA_BOX/cgroups"
exec 9> "$ASYA_BOX/lock"
flock 9
exec 8>&-

groups=()
while read -r group; do
    group=$group/${ASYA_BOX##*/}
    if ! reason=$(mkdir "$group" 2>&1); then
        echo "box.sh: $reason" >&2
        remove "$ASYA_BOX"
        exit 1
    fi
    groups+=("$group")
    echo "$group" >> "$ASYA_BOX/cgroups"
    if [ -e "$group/cpuset.cpus" ]; then
        for file in cpuset.cpus cpuset.mems; do cat "$group/../$file" > "$group/$file"; done
        echo 1 > "$group/cgroup.clone_children"
    fi
done < <(hierarchies)
missing=
for controller in cpu cpuacct cpuset devices freezer memory pids; do
    grep -q "/sys/fs/cgroup/\([^/]*,\)\?$controller[,/]" "$ASYA_BOX/cgroups" || missing="$missing $controller"
done
if [ -n "$missing" ]; then
    has="these are not mounted in /sys/fs/cgroup"
    [ -e /sys/fs/cgroup/cgroup.controllers ] && has="this machine has version 2 only, with controllers $(cat /sys/fs/cgroup/cgroup.controllers)"
    echo "box.sh: a box needs cgroups of version 1 for$missing; $has" >&2
    remove "$ASYA_BOX"
    exit 1
fi

(
    for group in "${groups[@]}"; do echo "$BASHPID" > "$group/cgroup.procs" || exit 1; done
    # Not ours to hold: the lock says whether this script runs.
    exec 9>&-
    exec setpriv --pdeathsig KILL unshare -mnpuiC --fork --mount-proc --kill-child --propagation private "$here/inside.sh" "$@"
) &
child=$!
code=0
trap 'code=130; kill -KILL $child 2>/dev/null' INT
trap 'code=143; kill -KILL $child 2>/dev/null' TERM HUP
wait $child
ended=$?
trap '' INT TERM HUP
wait $child 2>/dev/null
[ $code = 0 ] && code=$ended
remove "$ASYA_BOX" || { [ $code = 0 ] && code=1; }
exit $code
