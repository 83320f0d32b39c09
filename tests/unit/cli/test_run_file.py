"""Run files that `submit --run-file` refuses, before it opens anything."""

from pathlib import Path

import pytest

from tests.integration.command_line import CommandLine


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("max_cost = 1", "'max_cost' is no key: did you mean 'max-cost'?"),
        ('openai-api-key = "hush"', "'openai-api-key' is no key: keys are long options"),
        ('run-file = "x.toml"', "'run-file' is no key"),
        ('limit = "many"', "key 'limit': 'many' is not a valid integer range"),
        ("limit = true", "key 'limit': 'True' is not a valid integer range"),
        ("limit = [1, 2]", "key 'limit': '1,2' is not a valid integer range"),
        ("epochs = 0", "key 'epochs': 0 is not in the range 1<=x<=1000"),
        ("max-cost = nan", "key 'max-cost': nan is not"),
        ('cot = "perhaps"', "key 'cot': 'perhaps' is not a valid boolean"),
        ('batch-after = "soon"', "key 'batch-after': 'soon' is no time"),
        ("models = []", "key 'models': it is empty"),
        ("dataset = []", "key 'dataset': it is empty"),
        ("categories = []", "key 'categories': it is empty"),
        ("[dataset]\nname = 1", "key 'dataset': it is a table"),
        ('models = [["a"]]', "key 'models': it is a table"),
        ("limit = ", "is not valid TOML"),
        ("limit = 1" + "0" * 30, "more than 64 bits"),
    ],
)
def test_a_wrong_run_file_is_refused_in_one_line(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, text: str, says: str
) -> None:
    path = tmp_path / "wrong.toml"
    path.write_text(f"{text}\n")
    said = CommandLine(capsys).refused("submit", "--run-file", path, "--models", "baseline/keyword")
    assert said.startswith(f"error: {path}: ")
    assert says in said
    assert "hush" not in said
