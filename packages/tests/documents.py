#!/usr/bin/env python3
"""usage: documents.py PACKAGES PYTHON NODE_MODULES SCRATCH

Runs every command and program of README.md, docs/troubleshooting.md and docs/migrating.md as it is written there: each
document in a directory of its own that has nothing but the examples and `target/dist`, on a network of its own, without a Rust
toolchain on the search path. A command that serves runs until the next one that serves; all others must end with 0. Where a
document shows what a command prints, the output is compared.

PACKAGES has the packed files; PYTHON and NODE_MODULES have the SDKs, which are lent.
"""

import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import time

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
WAIT_SECONDS = 600

# Commands that run elsewhere, by their beginning, and where.
ELSEWHERE = {
    "cargo run --release": "it builds from source, as the other suites do",
    "cargo xtask test": "it runs this script",
    "sudo dpkg --install": "debian.sh installs the package in a copy of the machine",
    "docker load": "image.sh runs the files of the image",
    "npm install @azure/cosmos": "the SDK is lent, there is no network",
}
# What runs a program of a language, and the name of its file.
PROGRAMS = {"python": ("python", "first.py"), "js": ("node", "first.mjs")}
SERVES = re.compile(r"(^|&& )(npx )?\S*quire( serve| emulator|$)")
KEY = "C2y6yDjf5/R+ob0N8A7Cgv30VRDJIWEHLM+4QDU5DE2nQ9nDuVTqobD4b8mGGyPMbIZnqyMsEcaGQy67XIw/Jw=="


class Document:
    """One document, read from top to bottom."""

    def __init__(self, name, scratch, machine):
        self.name = name
        self.folder = scratch / pathlib.Path(name).stem
        self.machine = machine
        self.servers = []
        # Of the last command, and of each.
        self.printed = ""
        self.printed_by = {}
        self.shown = ""
        self.before = ""
        self.left_out = set()
        self.count = 0
        (self.folder / "target").mkdir(parents=True)
        (self.folder / "target/dist").symlink_to(machine.packages)
        shutil.copytree(REPOSITORY / "examples", self.folder / "examples", ignore=shutil.ignore_patterns("node_modules"))

    def run(self):
        print(self.name)
        try:
            for language, text in blocks((REPOSITORY / self.name).read_text()):
                self.take(language, text)
        finally:
            self.stop()

    def take(self, language, text):
        if language is None:
            self.between(text)
        elif language == "sh":
            for line in filter(None, text.splitlines()):
                self.command(line)
            if self.before.endswith("and so does"):
                self.compare(self.shown)
        elif language == "" and self.before.endswith("prints"):
            self.shown = text
            self.compare(text)
        elif language in PROGRAMS:
            self.program(language, text)

    def between(self, text):
        """Of a text: `node examples/library.mjs` does the same as the command before."""
        for command in re.findall(r"and so does\s+`(node [^`]+)`", text):
            self.command(command)
            self.compare(self.shown)
        self.before = text.strip()

    def program(self, language, text):
        """One that has a name is called by it later."""
        if named := re.match(r"# (\w+\.py) ", text):
            (self.folder / named[1]).write_text(text)
            return
        runs, name = PROGRAMS[language]
        (self.folder / name).write_text(text)
        self.command(f"{runs} {name}")

    def command(self, line):
        for beginning in ELSEWHERE:
            if line.startswith(beginning):
                print(f"    {line}\n        is left out: {ELSEWHERE[beginning]}", flush=True)
                self.left_out.add(beginning)
                return
        print(f"    {line}", flush=True)
        self.count += 1
        if SERVES.search(line.partition(" #")[0].strip()):
            self.stop()
            self.serve(line)
        else:
            self.printed = self.printed_by[line] = self.ends(line)

    def ends(self, line):
        self.lend_modules()
        ran = subprocess.run(line, shell=True, cwd=self.folder, env=self.machine.environment, stdout=subprocess.PIPE, text=True)
        if ran.returncode != 0:
            sys.exit(f"{self.name}: {line!r} ended with {ran.returncode}, it printed\n{ran.stdout}")
        return ran.stdout

    def serve(self, line, ready="quire is ready on http://"):
        output = self.folder / "output"
        with open(output, "w") as file:
            server = subprocess.Popen(
                line, shell=True, cwd=self.folder, env=self.machine.environment, stdout=file, start_new_session=True
            )
        self.servers.append(server)
        deadline = time.monotonic() + WAIT_SECONDS
        while not any(said.startswith(ready) for said in output.read_text().splitlines()):
            if server.poll() is not None or time.monotonic() > deadline:
                sys.exit(f"{self.name}: {line!r} does not serve, it printed\n{output.read_text()}")
            time.sleep(0.02)

    def stop(self):
        """With all that the command has started: orphans become children of this process, the first one of its namespace."""
        while self.servers:
            group = self.servers.pop().pid
            os.killpg(group, signal.SIGTERM)
            while has_children(group):
                pass

    def compare(self, expected):
        if self.printed != expected:
            sys.exit(f"{self.name} shows\n{expected}\nand this was printed:\n{self.printed}")

    def lend_modules(self):
        """Each time, by a link of its own: npm removes what it did not install, with all that is in it."""
        scope = self.folder / "node_modules" / "@azure"
        scope.mkdir(parents=True, exist_ok=True)
        if not (scope / "cosmos").is_symlink():
            (scope / "cosmos").symlink_to(self.machine.modules / "@azure" / "cosmos")


class Machine:
    """What a user has: Python with pip, Node.js with npm, and the SDKs. No toolchain, no settings, nothing in the home."""

    def __init__(self, packages, python, modules, scratch):
        self.packages = packages
        self.modules = modules
        home = scratch / "environment"
        subprocess.run([python, "-m", "venv", home], check=True)
        pathlib.Path(packages_of(home / "bin/python"), "lent.pth").write_text(packages_of(python))
        folders = [home / "bin", pathlib.Path(shutil.which("node")).parent, "/usr/sbin", "/usr/bin", "/sbin", "/bin"]
        self.environment = {
            "PATH": ":".join(map(str, folders)),
            "HOME": str(scratch / "home"),
            "LANG": "C.UTF-8",
            "PIP_DISABLE_PIP_VERSION_CHECK": "1",
            "npm_config_offline": "true",
            "npm_config_audit": "false",
            "npm_config_fund": "false",
            "npm_config_update_notifier": "false",
        }
        (scratch / "home").mkdir()


def packages_of(python):
    script = "import sysconfig; print(sysconfig.get_path('purelib'))"
    return subprocess.run([python, "-c", script], check=True, stdout=subprocess.PIPE, text=True).stdout.strip()


def has_children(group):
    """Waits for one of them."""
    try:
        os.waitpid(-group, 0)
        return True
    except ChildProcessError:
        return False


def blocks(text):
    """Pairs of a language and what is in the fences, and of `None` and what is between them."""
    language, lines = None, []
    for line in text.splitlines():
        if line.startswith("```"):
            yield language, "".join(f"{line}\n" for line in lines)
            language, lines = (line[3:] if language is None else None), []
        else:
            lines.append(line)
    yield language, "".join(f"{line}\n" for line in lines)


def connection_string(port):
    return f"AccountEndpoint=http://localhost:{port}/;AccountKey={KEY};"


def readme(scratch, machine):
    document = Document("README.md", scratch, machine)
    document.run()
    return document


def troubleshooting(scratch, machine):
    """There is a server with keys of its own, and a program that asks over https."""
    document = Document("docs/troubleshooting.md", scratch, machine)
    programs = [text for language, text in blocks((REPOSITORY / "README.md").read_text()) if language == "js"]
    (document.folder / "app.mjs").write_text(programs[0].replace("http://localhost", "https://localhost"))
    document.serve("quire serve --listen 0.0.0.0:8081")
    document.run()
    return document


def migrating(scratch, machine):
    """A second account takes the data of the first."""
    document = Document("docs/migrating.md", scratch, machine)
    machine.environment |= {"SOURCE": connection_string(8081), "TARGET": connection_string(8082)}
    second = Document("docs/migrating.md", scratch / "second", machine)
    second.serve("quire emulator --ephemeral --listen 127.0.0.1:8082")
    document.run()
    shown = [text for language, text in blocks((REPOSITORY / document.name).read_text()) if language == ""]
    document.printed = document.printed_by["quire connect --endpoint https://localhost:8081/"]
    document.compare(shown[0])
    document.printed = document.printed_by['python copy_account.py "$SOURCE" "$TARGET"']
    document.compare("shop orders 2\n")
    query = "quire query shop orders 'SELECT VALUE COUNT(1) FROM o' --endpoint http://127.0.0.1:8082/"
    assert second.ends(query) == "2\n", "the items were copied"
    second.stop()
    return document


def main():
    if os.environ.get("ALONE") is None:
        alone = ["unshare", "--map-root-user", "--net", "--pid", "--fork", "--kill-child"]
        os.execvpe(alone[0], [*alone, sys.executable, *sys.argv], os.environ | {"ALONE": "1"})
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    # As they are named: the Python of an environment is a link.
    packages, python, modules, scratch = (pathlib.Path(word).absolute() for word in sys.argv[1:])
    machine = Machine(packages, python, modules, scratch)
    documents = [read(scratch, machine) for read in (readme, troubleshooting, migrating)]
    unused = set(ELSEWHERE).difference(*(document.left_out for document in documents))
    if unused:
        sys.exit(f"no document has {sorted(unused)}")
    print(f"{sum(document.count for document in documents)} commands ran as written")


if __name__ == "__main__":
    main()
