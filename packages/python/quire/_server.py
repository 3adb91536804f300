"""A server for tests: a free port, nothing kept, ended with the process that started it."""

from __future__ import annotations

import atexit
import os
import pathlib
import select
import subprocess
import tempfile
import time
import urllib.request
from types import TracebackType
from typing import IO, Any, Sequence

WELL_KNOWN_KEY = "C2y6yDjf5/R+ob0N8A7Cgv30VRDJIWEHLM+4QDU5DE2nQ9nDuVTqobD4b8mGGyPMbIZnqyMsEcaGQy67XIw/Jw=="
"""The public key of the emulators, which the server takes."""

_READY = "quire is ready on "
_STOP_SECONDS = 30.0
# Variables of the caller that would change what a test sees.
_OTHERS = ("PORT", "DATA_PATH", "KEY_FILE", "LOG_LEVEL", "PROTOCOL", "GATEWAY_PUBLIC_ENDPOINT")
_OTHER_PREFIXES = ("QUIRE_", "AZURE_COSMOS_EMULATOR_")


class ServerError(RuntimeError):
    """The server did not start; the text says what it said."""


def binary() -> str:
    """The path of the program `quire` in this package."""
    return str(pathlib.Path(__file__).parent / "_bin" / "quire")


class Server:
    """A running server, used by `with`, or by `start` and `stop`.

    It listens on 127.0.0.1 with the emulators' key and ends with this process, also when that is killed.

    partitions: partitions of a new container.
    seed: a file or directory with databases, containers and items to begin with.
    data: a directory to keep the data in; without it everything is in memory.
    https: give an https endpoint, whose authority is in the file `certificate`.
    arguments: further flags of `quire emulator`.
    timeout: seconds to wait until the server is ready.
    """

    def __init__(
        self,
        *,
        partitions: int | None = None,
        seed: str | os.PathLike[str] | None = None,
        data: str | os.PathLike[str] | None = None,
        https: bool = False,
        arguments: Sequence[str] = (),
        timeout: float = 30.0,
    ) -> None:
        self._command = [binary(), "emulator", "--listen", "127.0.0.1:0", "--log", "error"]
        self._command += ["--ephemeral"] if data is None else ["--data", os.fspath(data)]
        if partitions is not None:
            self._command += ["--partitions", str(partitions)]
        if seed is not None:
            self._command += ["--seed", os.fspath(seed)]
        self._command += arguments
        self._https = https
        self._timeout = timeout
        self._process: subprocess.Popen[bytes] | None = None
        self._owner = 0
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._port = 0

    def start(self) -> Server:
        """Returns when the server answers."""
        if self._process is not None:
            raise ServerError("the server is running already")
        with tempfile.TemporaryFile() as log:
            command = [*self._command, "--stop-with", str(os.getpid())]
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log, env=_environment()
            )
            try:
                self._port = _ready_port(process, log, self._timeout)
            except BaseException:
                process.kill()
                process.wait()
                raise
            finally:
                assert process.stdout is not None
                process.stdout.close()
        self._process = process
        self._owner = os.getpid()
        atexit.register(self.stop)
        return self

    def stop(self) -> None:
        """Ends the server. One that has ended already, or that another process started, is left alone."""
        process, self._process = self._process, None
        if process is None or self._owner != os.getpid():
            return
        atexit.unregister(self.stop)
        process.terminate()
        try:
            process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        if self._folder is not None:
            self._folder.cleanup()
            self._folder = None

    def __enter__(self) -> Server:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def port(self) -> int:
        if self._process is None:
            raise ServerError("the server is not running")
        return self._port

    @property
    def endpoint(self) -> str:
        """The URL of the account."""
        return f"https://localhost:{self.port}/" if self._https else f"http://127.0.0.1:{self.port}/"

    @property
    def key(self) -> str:
        """The account's key."""
        return WELL_KNOWN_KEY

    @property
    def connection_string(self) -> str:
        return f"AccountEndpoint={self.endpoint};AccountKey={self.key};"

    @property
    def certificate(self) -> str:
        """A file with the certificate of the authority that signed the server's: `connection_verify=q.certificate`."""
        if self._folder is None:
            folder = tempfile.TemporaryDirectory(prefix="quire-")
            url = f"http://127.0.0.1:{self.port}/_explorer/emulator.pem"
            opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
            with opener.open(url) as answer:
                pathlib.Path(folder.name, "emulator.pem").write_bytes(answer.read())
            self._folder = folder
        return str(pathlib.Path(self._folder.name, "emulator.pem"))


def _environment() -> dict[str, str]:
    return {
        name: value
        for name, value in os.environ.items()
        if name not in _OTHERS and not name.startswith(_OTHER_PREFIXES)
    }


def _ready_port(process: subprocess.Popen[bytes], log: IO[Any], timeout: float) -> int:
    """Reads the line that the server prints when it is ready."""
    assert process.stdout is not None
    descriptor, line, deadline = process.stdout.fileno(), b"", time.monotonic() + timeout
    while not line.endswith(b"\n"):
        left = deadline - time.monotonic()
        if left <= 0 or not select.select([descriptor], [], [], left)[0]:
            raise ServerError(f"quire was not ready after {timeout} seconds\n{_said(log)}")
        part = os.read(descriptor, 4096)
        if not part:
            process.wait()
            raise ServerError(f"quire ended with {process.returncode}\n{_said(log)}")
        line += part
    text = line.decode().strip()
    if not text.startswith(_READY):
        raise ServerError(f"quire said {text!r}")
    return int(text.rstrip("/").rpartition(":")[2])


def _said(log: IO[Any]) -> str:
    log.seek(0)
    return bytes(log.read()).decode(errors="replace").strip()
