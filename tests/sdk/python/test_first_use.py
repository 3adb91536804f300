"""The program of the README, as it stands there."""

import re
from pathlib import Path

from conftest import ENDPOINT, client_options

README = Path(__file__).parents[3] / "README.md"


def test_the_readme_program_runs(capsys):
    program = re.search(r"```python\n(.*?)```", README.read_text(), re.S).group(1)
    assert "http://localhost:8081/" in program
    program = program.replace("http://localhost:8081/", ENDPOINT)
    if options := client_options():
        program = program.replace("CosmosClient(", f"CosmosClient(connection_verify={options['connection_verify']!r}, url=", 1)
        program = re.sub(r"url=\s*(\"[^\"]+\"),\s*", r"url=\1, credential=", program, count=1)
    exec(compile(program, "README.md", "exec"), {})
    assert "Ada" in capsys.readouterr().out
