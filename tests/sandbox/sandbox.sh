#!/bin/bash
# Runs a command in an environment where a kubelet can work, and cleans up afterwards: sandbox.sh COMMAND...
#
# The command has its own mount, network, process, host name, IPC and cgroup namespaces. It reaches nothing outside but
# files, and every process that it started ends with it. Needs root and cgroups version 1. The command may write to the
# folder ASYA_SANDBOX. Anything that cannot be cleaned up is reported, and fails a command that succeeded.
set -u
here=$(cd "$(dirname "$0")" && pwd)
root=${TMPDIR:-/tmp}

# The cgroups of this process: a folder for each hierarchy of version 1, as mounted, and for that of version 2 where it
# is mounted, too, since a container runtime uses it.
hierarchies() {
    while IFS=: read -r _ controllers path; do
        controllers=${controllers#name=}
        mounted=/sys/fs/cgroup/${controllers:-unified}
        [ ! -d "$mounted" ] || echo "$mounted${path%/}"
    done < /proc/self/cgroup
}

# Removes a sandbox: its cgroups, once its processes have ended, and its folder. Reports cgroups and mounts that remain.
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
    # Keep the folder in that case, so that the next run tries again.
    [ -z "$stays" ] || { echo "sandbox.sh: this stays: $stays" >&2; return 1; }
    rm -rf "$1"
}

# Serialized, so that no other run takes a sandbox whose lock is not held yet for a dead one.
exec 8> "$root/asya-sandboxes.lock"
flock 8
for folder in "$root"/asya-sandbox-*; do
    [ -e "$folder/lock" ] && flock --nonblock "$folder/lock" true && remove "$folder"
done
ASYA_SANDBOX=$(mktemp -d "$root/asya-sandbox-XXXXXX") || exit 1
export ASYA_SANDBOX
touch "$ASYA_SANDBOX/cgroups"
exec 9> "$ASYA_SANDBOX/lock"
flock 9
exec 8>&-

groups=()
while read -r group; do
    group=$group/${ASYA_SANDBOX##*/}
    if ! reason=$(mkdir "$group" 2>&1); then
        echo "sandbox.sh: $reason" >&2
        remove "$ASYA_SANDBOX"
        exit 1
    fi
    groups+=("$group")
    echo "$group" >> "$ASYA_SANDBOX/cgroups"
    if [ -e "$group/cpuset.cpus" ]; then
        for file in cpuset.cpus cpuset.mems; do cat "$group/../$file" > "$group/$file"; done
        echo 1 > "$group/cgroup.clone_children"
    fi
done < <(hierarchies)
missing=
for controller in cpu cpuacct cpuset devices freezer memory pids; do
    grep -q "/sys/fs/cgroup/\([^/]*,\)\?$controller[,/]" "$ASYA_SANDBOX/cgroups" || missing="$missing $controller"
done
if [ -n "$missing" ]; then
    has="these are not mounted in /sys/fs/cgroup"
    [ -e /sys/fs/cgroup/cgroup.controllers ] && has="this machine has version 2 only, with controllers $(cat /sys/fs/cgroup/cgroup.controllers)"
    echo "sandbox.sh: a sandbox needs cgroups of version 1 for$missing; $has" >&2
    remove "$ASYA_SANDBOX"
    exit 1
fi

(
    for group in "${groups[@]}"; do echo "$BASHPID" > "$group/cgroup.procs" || exit 1; done
    # Release the lock in the child: it says whether this script runs.
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
remove "$ASYA_SANDBOX" || { [ $code = 0 ] && code=1; }
exit $code
