"""The wheel in an environment that has nothing else: the helper, the fixture, the command, and the SDK on top."""

import os
import pathlib
import re
import signal
import socket
import subprocess
import sys
import sysconfig
import threading
import time

import pytest
from azure.cosmos import CosmosClient, PartitionKey

import quire

README = pathlib.Path(__file__).parents[3] / "README.md"
SEED = pathlib.Path(__file__).parents[3] / "examples" / "seed"


def use(client):
    """What the SDK does first."""
    people = client.create_database("library").create_container("people", PartitionKey("/city"))
    people.create_item({"id": "ada", "city": "London", "name": "Ada"})
    assert people.read_item("ada", "London")["name"] == "Ada"
    query = "SELECT VALUE c.id FROM c WHERE c.city = 'London'"
    assert list(people.query_items(query, enable_cross_partition_query=True)) == ["ada"]


def databases(server):
    return [database["id"] for database in CosmosClient.from_connection_string(server.connection_string).list_databases()]


def is_open(port):
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def until(what, holds):
    deadline = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < deadline, f"waited too long until {what}"
        time.sleep(0.01)


def test_the_sdk_works_with_the_connection_string():
    with quire.Server() as q:
        use(CosmosClient.from_connection_string(q.connection_string))
        port = q.port
    assert not is_open(port)


def test_the_sdk_works_over_https_with_the_certificate():
    with quire.Server(https=True) as q:
        assert q.endpoint.startswith("https://localhost:")
        use(CosmosClient(q.endpoint, q.key, connection_verify=q.certificate))


def test_the_fixture_is_a_running_server(quire_server):
    assert databases(quire_server) == []


def test_two_at_once_have_nothing_in_common():
    with quire.Server() as first, quire.Server() as second:
        CosmosClient.from_connection_string(first.connection_string).create_database("only")
        assert databases(first) == ["only"]
        assert databases(second) == []


def test_a_seed_and_partitions(tmp_path):
    with quire.Server(seed=SEED, partitions=3) as q:
        container = CosmosClient.from_connection_string(q.connection_string).get_database_client("shop").get_container_client("orders")
        assert len(list(container.read_feed_ranges())) == 3
        assert list(container.query_items("SELECT VALUE COUNT(1) FROM o", enable_cross_partition_query=True)) == [2]


def test_a_directory_is_kept(tmp_path):
    for expected in [[], ["kept"]]:
        with quire.Server(data=tmp_path / "data") as q:
            assert databases(q) == expected
            CosmosClient.from_connection_string(q.connection_string).create_database_if_not_exists("kept")


def test_one_that_does_not_start_says_why():
    with pytest.raises(quire.ServerError, match="--partitions must lie between 1 and 1000"):
        quire.Server(partitions=0).start()
    with pytest.raises(quire.ServerError, match="not running"):
        quire.Server().endpoint
    with quire.Server() as q, pytest.raises(quire.ServerError, match="running already"):
        q.start()


def test_settings_of_the_caller_do_not_count(monkeypatch, tmp_path):
    monkeypatch.setenv("QUIRE_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("QUIRE_LISTEN", "192.0.2.1:8081")
    monkeypatch.setenv("PORT", "no port")
    with quire.Server() as q:
        assert databases(q) == []
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize("kill", [signal.SIGKILL, signal.SIGTERM])
def test_a_test_process_that_is_killed_takes_the_server_along(kill):
    program = "import quire, time; print(quire.Server().start().port, flush=True); time.sleep(600)"
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE) as process:
        port = int(process.stdout.readline())
        assert is_open(port)
        process.send_signal(kill)
    until("the server has ended", lambda: not is_open(port))


def test_a_process_that_forgets_to_stop_it_ends():
    program = "import quire; print(quire.Server().start().port)"
    output = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert not is_open(int(output.stdout))


def test_it_outlives_the_thread_that_started_it():
    server = quire.Server()
    thread = threading.Thread(target=server.start)
    thread.start()
    thread.join()
    try:
        assert databases(server) == []
    finally:
        server.stop()


def test_a_forked_process_leaves_it_alone():
    with quire.Server(https=True) as q:
        certificate = pathlib.Path(q.certificate)
        child = os.fork()
        if child == 0:
            q.stop()
            os._exit(0)
        os.waitpid(child, 0)
        assert certificate.exists()
        assert databases(q) == []


def test_the_program_of_the_readme():
    programs = re.findall(r"```python\n(.*?)```", README.read_text(), re.S)
    [program] = [program for program in programs if "import quire" in program]
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert ran.stdout == "test\n"


def test_the_command_is_installed():
    command = pathlib.Path(sysconfig.get_path("scripts"), "quire")
    assert subprocess.run([command, "--version"], capture_output=True, text=True, check=True).stdout.startswith("quire ")
    output = subprocess.run([command, "connect", "python"], capture_output=True, text=True, check=True).stdout
    with quire.Server() as q:
        program = output.replace("http://127.0.0.1:8081/", q.endpoint)
        ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
        assert ran.stdout == "Ada\n"
