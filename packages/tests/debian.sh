#!/bin/sh
# usage: debian.sh PACKAGE PYTHON NODE_MODULES SCRATCH        (as root)
# In a copy of this machine that is thrown away: the package is installed, its command runs the first programs of README.md, it
# serves as its own user with keys of its own, is installed again over changed settings, removed and purged.
set -eu
package=$(realpath "$1")
python=$2
modules=$3
scratch=$4
if [ -z "${COPY:-}" ]; then
    COPY=1 exec unshare --mount --net --pid --fork --kill-child "$0" "$package" "$python" "$modules" "$scratch"
fi
repository=$(realpath "$(dirname "$0")/../..")
ip link set lo up
mount -t tmpfs tmpfs "$scratch"
mkdir "$scratch/upper" "$scratch/work" "$scratch/root"
root=$scratch/root
mount -t overlay overlay -o "lowerdir=/,upperdir=$scratch/upper,workdir=$scratch/work" "$root"
mount -t proc proc "$root/proc"
mount --bind /dev "$root/dev"
mount -t tmpfs tmpfs "$root/run"
# It may lie on another file system, which the copy has not.
mkdir -p "$root$repository" "$root/run/first-use"
mount --bind "$repository" "$root$repository"
cp "$package" "$root/run/quire.deb"
paths=PATH=$(dirname "$(command -v node)"):/usr/sbin:/usr/bin:/sbin:/bin
inside() {
    chroot "$root" env -i $paths "$@"
}
# Whatever the machine has of it.
inside dpkg --purge quire 2>/dev/null || true
rm -rf "$root/etc/quire" "$root/var/lib/quire"

inside dpkg --no-triggers --install /run/quire.deb
test "$(inside stat -c '%U %a' /etc/quire/keys)" = 'quire 600'
test "$(inside stat -c '%U %a' /var/lib/quire)" = 'quire 700'
inside man --where quire-serve >/dev/null 2>&1 || test -s "$root/usr/share/man/man1/quire-serve.1.gz"
inside systemd-analyze verify --man=no /usr/lib/systemd/system/quire.service

inside ALONE=1 "$repository/packages/tests/first_use.sh" /usr/bin/quire "$python" "$modules" /run/first-use

start() {
    # As the unit says, without systemd: user, directory, command.
    command=$(sed -n 's/^ExecStart=//p' "$root/usr/lib/systemd/system/quire.service")
    chroot "$root" env -i $paths setpriv --reuid=quire --regid=quire --init-groups --no-new-privs \
        sh -c "cd /var/lib/quire && exec $command" &
    server=$!
    until inside quire health 2>/dev/null; do
        kill -0 $server
        sleep 0.05
    done
}
start
status=0
inside quire query d c 'SELECT 1' || status=$?
test $status = 5 # The well-known key does not open it.
said=$(inside quire query d c 'SELECT 1' --key-file /etc/quire/keys 2>&1) || true
echo "$said" | grep -q 404 # Its own key does, and there is no such container.
kill -TERM $server
wait $server

echo '# changed by hand' >>"$root/etc/quire/quire.toml"
cp "$root/etc/quire/keys" "$scratch/keys"
inside dpkg --no-triggers --install /run/quire.deb
grep -q 'changed by hand' "$root/etc/quire/quire.toml"
cmp "$root/etc/quire/keys" "$scratch/keys"
start
kill -TERM $server
wait $server

inside dpkg --no-triggers --remove quire
test ! -e "$root/usr/bin/quire"
test -e "$root/etc/quire/quire.toml"
test -e "$root/var/lib/quire/data/format"
inside dpkg --no-triggers --purge quire
test ! -e "$root/etc/quire"
test -e "$root/var/lib/quire/data/format"
