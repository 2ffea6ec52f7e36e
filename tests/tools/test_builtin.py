import json
import subprocess
import sys

import pytest

from pyagentd.policy.action import canonical_tool
from pyagentd.tools.builtin import builtin_tools
from pyagentd.tools.spec import ToolSpec

TOOLS = builtin_tools()


def test_the_built_in_tools_and_what_they_may() -> None:
    facts = {name: (spec.kind, spec.confirm, spec.parallel_safe) for name, spec in TOOLS.items()}
    assert facts == {
        "Read": ("read", False, True),
        "Write": ("write", True, False),
        "Edit": ("write", True, False),
        "Glob": ("read", False, True),
        "Grep": ("read", False, True),
        "Bash": ("command", True, False),
    }


@pytest.mark.parametrize("spec", TOOLS.values(), ids=TOOLS)
def test_every_schema_is_closed_json_and_describes_its_arguments(spec: ToolSpec) -> None:
    schema = json.loads(json.dumps(spec.input_schema))
    assert schema["additionalProperties"] is False
    assert set(schema["required"]) <= set(schema["properties"])
    assert all(argument["description"] and argument["type"] for argument in schema["properties"].values())
    assert spec.description == spec.description.strip()


def test_other_systems_names_lead_to_our_tools() -> None:
    names = ["read", "write", "edit", "glob", "grep", "bash", "read_file", "view", "create_file", "str_replace"]
    assert {canonical_tool(name) for name in names} == set(TOOLS)


def test_the_search_worker_imports_nothing_heavy() -> None:
    code = "import sys, pyagentd.tools.search_worker; print('asyncio' in sys.modules, 'wcmatch' in sys.modules)"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert out == "False False\n"
