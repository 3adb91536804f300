#!/bin/sh
# usage: first_use.sh PROGRAM PYTHON NODE_MODULES SCRATCH
# The first programs of README.md, as they stand there, on a network of their own and with an empty environment (no Rust
# toolchain, no settings): against `quire`, against `quire emulator`, over https with the certificate that it gives away, and
# with the emulators' own connection string.
set -eu
program=$(realpath -s "$1")
python=$2
modules=$3
readme=$(dirname "$(realpath "$0")")/../../README.md
if [ -z "${ALONE:-}" ]; then
    paths=$(dirname "$(command -v node)"):/usr/sbin:/usr/bin:/sbin:/bin
    exec unshare --map-root-user --net --pid --fork --kill-child \
        env -i ALONE=1 PATH="$paths" "$0" "$program" "$python" "$modules" "$4"
fi
ip link set lo up
cd "$4"
export XDG_STATE_HOME="$PWD"
ln -sfn "$modules" node_modules
block() {
    awk -v language="$1" '$0 == "```" { inside = 0 } inside { print } $0 == "```" language && !done { inside = 1; done = 1 }' "$readme"
}
block python >first.py
block js >first.mjs
test -s first.py && test -s first.mjs

start() {
    "$program" "$@" &
    server=$!
    until "$program" health 2>/dev/null; do
        kill -0 $server
        sleep 0.05
    done
}
stop() {
    kill -TERM $server
    wait $server
}
both() {
    test "$("$python" "$1.py" 2>/dev/null)" = "$(printf "Ada\n{'name': 'Ada'}")"
    test "$(node "$1.mjs")" = Ada
}
start
both first
stop
rm -r quire-data
start emulator
both first
curl --silent --fail http://localhost:8081/_explorer/emulator.pem >emulator.pem
for ending in py mjs; do
    sed 's,http://localhost,https://localhost,' first.$ending >secure.$ending
done
export REQUESTS_CA_BUNDLE="$PWD/emulator.pem" NODE_EXTRA_CA_CERTS="$PWD/emulator.pem"
both secure
key='C2y6yDjf5/R+ob0N8A7Cgv30VRDJIWEHLM+4QDU5DE2nQ9nDuVTqobD4b8mGGyPMbIZnqyMsEcaGQy67XIw/Jw=='
known="AccountEndpoint=https://localhost:8081/;AccountKey=$key;"
test "$("$program" connect --endpoint https://localhost:8081/)" = "$known"
cat >known.py <<'END'
import sys
from azure.cosmos import CosmosClient
print([database["id"] for database in CosmosClient.from_connection_string(sys.argv[1]).list_databases()])
END
test "$("$python" known.py "$known" 2>/dev/null)" = "['library']"
cat >known.mjs <<'END'
import { CosmosClient } from "@azure/cosmos";
console.log((await new CosmosClient(process.argv[2]).databases.readAll().fetchAll()).resources.map((it) => it.id));
END
test "$(node known.mjs "$known")" = "[ 'library' ]"
stop
