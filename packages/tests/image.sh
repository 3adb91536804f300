#!/bin/sh
# usage: image.sh ROOT SCRATCH            (as root; USER_ID, ENVIRONMENT, ENTRYPOINT and HEALTH are those of the image)
# The files of an image as a container has them: the only files, read-only but for the volume, processes, network and user of
# its own. The server is process 1, runs scripts, answers its health check, and ends without an error when it is stopped.
# shellcheck disable=SC2086 # the variables are lists of words
set -eu
root=$(realpath "$1")
scratch=$(realpath "$2")
here=$(dirname "$(realpath "$0")")
nsenter=$(command -v nsenter)
chroot=$(command -v chroot)
mkdir -p "$scratch/volume" "$root/proc" "$root/dev"
cp -a "$root/data/." "$scratch/volume"
chown --reference="$root/data" "$scratch/volume"
chmod --reference="$root/data" "$scratch/volume"
mkdir -p "$root/seed"
touch "$root/dev/null"

# shellcheck disable=SC2016
inside='
set -eu
ip link set lo up
mount --bind "$root" "$root"
mount --bind "$scratch/volume" "$root/data"
mount --bind "$here/../../examples/seed" "$root/seed"
mount --bind /dev/null "$root/dev/null"
mount -t proc proc "$root/proc"
mount -o remount,bind,ro "$root"
exec env -i $ENVIRONMENT "$chroot" --userspec="$USER_ID" "$root" $ENTRYPOINT "$@"'
export root scratch here chroot

first=
# A process that has changed its user does not end with the one that started it.
trap 'test -z "$first" || kill -KILL "$first" 2>/dev/null || true' EXIT
start() {
    # With the priority of a background service.
    nice -n 10 unshare --mount --net --pid --fork --kill-child sh -c "$inside" sh "$@" &
    container=$!
    first=
    until [ -n "$first" ] && within $HEALTH 2>/dev/null; do
        kill -0 $container
        sleep 0.05
        first=$(cat "/proc/$container/task/$container/children")
        first=${first%% *}
    done
}
within() {
    env -i $ENVIRONMENT "$nsenter" --target "$first" --mount --net --pid --root \
        --setgid "${USER_ID#*:}" --setuid "${USER_ID%:*}" "$@"
}
query() {
    within /usr/bin/quire query shop orders "$1"
}
stop() {
    kill -TERM "$first"
    wait $container
    first=
}

test "${USER_ID%:*}" != 0
start emulator --seed /seed
test "$(sed -n 's/^Uid:\t\([0-9]*\).*/\1/p' "/proc/$first/status")" = "${USER_ID%:*}"
test "$(query 'SELECT VALUE udf.twice(o.total) FROM o WHERE o.id = "1"')" = 40
stop
start emulator
test "$(query 'SELECT VALUE COUNT(1) FROM o')" = 2
stop
# A server that is no emulator makes keys of its own.
rm -rf "$scratch/volume/"*
start serve
if query 'SELECT 1' 2>/dev/null; then
    exit 1
fi
test "$(stat -c '%u %a' "$scratch/volume/keys")" = "${USER_ID%:*} 600"
stop
