#!/bin/sh
# usage: tarball.sh TARBALL SCRATCH
# Unpacked into an empty directory: the checksums are right, the program serves, pages and completions are there.
set -eu
tarball=$(realpath "$1")
here=$(dirname "$(realpath "$0")")
cd "$2"
tar -xzf "$tarball"
cd quire-*
sha256sum --check --quiet SHA256SUMS
for file in LICENSE THIRD-PARTY.txt README.md; do
    test -s "share/doc/quire/$file"
done
test -s share/man/man1/quire-emulator.1
bash -c '. share/bash-completion/completions/quire'

XDG_STATE_HOME=$PWD ./bin/quire emulator --listen 127.0.0.1:0 --ephemeral --seed "$here/../../examples/seed" --stop-with $$ >ready &
server=$!
until grep -q ready ready; do
    kill -0 $server
    sleep 0.05
done
endpoint=$(sed 's/.* on //' ready)
./bin/quire health --endpoint "$endpoint"
curl --silent --fail "${endpoint}_explorer/emulator.pem" >emulator.pem
secure=https://localhost:${endpoint##*:}
found=$(./bin/quire query shop orders 'SELECT VALUE udf.twice(o.total) FROM o WHERE o.id = "1"' --endpoint "$secure" --ca emulator.pem)
test "$found" = 40
kill $server
wait $server
