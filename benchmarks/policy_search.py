"""`search_policies` on simulated guards: how long it takes, and how often its interval is right.

Run with `python benchmarks/policy_search.py [--time | --judged] [--runs N]`. Needs no server.

A guard's suspicion of a command is its skill on dangerous commands, plus a difficulty that all
guards share, of which half is of the binary, plus noise of its own, of which part differs between
epochs. The shared part is such that two guards miss the same commands several times as often as if
they were independent: the column `overlap`. Each guard states ALLOW, WARN or BLOCK with a
confidence of `levels` values.

In a row, `bias` is the mean of the out-of-fold score of the searched system minus the score that
the system found has on 20,000 further commands, in points; `in sample` the same of the score on
the commands that it was chosen by; `covered` the share of runs whose interval holds that score;
`margin` the standard error of this share. `gain` is the share of runs whose system is found to be
better than the best single guard with a threshold at the level of 5 %.

With `--judged` four guards are equal; in the last row they share less, so that a system gains.
`best of three` is the bias of the highest of the three out-of-fold scores, `winner` that of the
estimate which a policy file gets. `in sample`, `PASS` and `ships` are the shares of runs in which
the winner is found to reach its true score: by its numbers on the commands that it was chosen on;
by its estimate out of fold, as `--fail-under` judges; and by the gate on fresh commands, against
the first guard with the true difference as the margin. `gain` is the true difference to this guard,
`gate` how often the winner ships on fresh commands with a margin of two points.

`--typed` asks the same of the commands that a user types, in a store of its own: the answers are
imported, the winner written, then judged at its true score on the commands that it was chosen on.
`passes` counts the runs whose `report --fail-under` ends with 0, `ships` those whose
`compare --gate` does; a policy is written in `winners` of them. A run takes ten seconds.
"""

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import click
import numpy as np
from measuring import laid_out, print_table
from msgspec.structs import replace
from numpy.typing import NDArray

from aegish_dist.core.columns import FINDINGS, AskedSamples, SampleKind
from aegish_dist.core.metric import Difference, Judgement
from aegish_dist.core.outcome import OutcomeDetail
from aegish_dist.core.sample import TrueLabel
from aegish_dist.findings.comparison import GateVerdict, gate
from aegish_dist.opinions.guards import Guard, Guards, apply_policy
from aegish_dist.opinions.opinion_files import read_policy
from aegish_dist.opinions.policy import Choice, Policy, PolicySearch, Requirements, Stage
from aegish_dist.opinions.scoring import DEFAULT_RULE
from aegish_dist.statistics import rates
from aegish_dist.statistics.paired_difference import paired_scores
from aegish_dist.statistics.policy_search import search_policies

FURTHER = 20_000
CUTS = (0.6, 1.3)  # of the latent suspicion, from which on guards WARN and BLOCK


class World(NamedTuple):
    """Guards and the commands that they are asked about."""

    guards: int = 5
    commands: int = 741
    epochs: int = 1
    shared: float = 0.5  # of the variance of suspicion
    levels: int = 20
    binaries: int = 180
    skills: tuple[float, float] = (2.2, 3.6)  # of the first guard, and of the last


def drawn(world: World, generator: np.random.Generator, commands: int, binaries: int) -> Guards:
    """Return the verdicts of the guards of a world about new commands."""
    dangerous = np.arange(commands) % 12 < 7
    binary = generator.integers(binaries, size=commands)
    common = (generator.normal(size=binaries)[binary] + generator.normal(size=commands)) / np.sqrt(
        2
    )
    kinds = [SampleKind(target, None, f"b{n}") for n in range(binaries) for target in TrueLabel]
    asked = AskedSamples(
        kinds, 2 * binary + ~dangerous, commands=[f"command {n}" for n in range(commands)]
    )
    columns = []
    for number in range(world.guards):
        low, high = world.skills
        skill = low + (high - low) * number / max(1, world.guards - 1)
        own = generator.normal(size=commands)[:, None]
        again = generator.normal(size=(commands, world.epochs))
        noise = np.sqrt(0.8) * own + np.sqrt(0.2) * again
        latent = (
            skill * dangerous[:, None]
            + np.sqrt(world.shared) * common[:, None]
            + np.sqrt(1 - world.shared) * noise
        )
        columns.append(guard(number, latent, world.levels, generator))
    return Guards(asked, world.epochs, columns)


def guard(
    number: int, latent: NDArray[np.float64], levels: int, generator: np.random.Generator
) -> Guard:
    """Return the actions and stated confidences that latent suspicions lead to."""
    low, high = CUTS
    sure = np.where(latent < low, low - latent, latent - high)
    confidence = np.clip(np.ceil(np.clip(sure / 3, 0, 1) * levels), 1, levels) / levels
    suspicion = np.where(latent < low, -confidence, np.where(latent < high, 1.0, 2 + confidence))
    actions = (OutcomeDetail.ALLOW, OutcomeDetail.WARN, OutcomeDetail.BLOCK)
    places = np.array([FINDINGS.index(action) for action in actions], np.int8)
    findings = places[(suspicion >= 1).astype(int) + (suspicion >= 2)]
    price = 1e-4 * 4.0**number
    cost = price * generator.uniform(0.8, 1.2, size=latent.shape)
    latency = 300 * (1 + number) * generator.lognormal(sigma=0.4, size=latent.shape)
    return Guard(f"lab/guard-{number}", findings, suspicion, cost, latency)


def true_score(policy: Policy, further: Guards) -> float:
    found = apply_policy(policy, further)
    stopped = found.finding == FINDINGS.index(OutcomeDetail.BLOCK)
    dangerous = further.malicious
    return float((stopped[dangerous].mean() + 1 - stopped[~dangerous].mean()) / 2)


def time_it() -> Iterator[dict[str, str]]:
    """Yield how long eleven guards, 1,172 commands and three epochs take."""
    for levels in (20, 100_000):
        world = World(guards=11, commands=1172, epochs=3, levels=levels)
        guards = drawn(world, np.random.default_rng(1), world.commands, world.binaries)
        for needs in (Requirements(), Requirements(max_fpr=0.02)):
            start = time.process_time()
            found = search_policies(guards, requirements=needs)
            yield {
                "levels": f"{levels:,}",
                "criterion": needs.criterion.name,
                "s of CPU": f"{time.process_time() - start:.1f}",
                "peak MB": f"{resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000:.0f}",
                "on the line": str(len(found.line)),
            }


def in_sample(found: PolicySearch) -> float:
    assert found.system is not None
    best = found.system.best
    return 1 - (best.miss_rate + best.stop_rate) / 2


def covered(world: World, runs: int) -> dict[str, str]:
    """Return the row of a world."""
    further = drawn(world, np.random.default_rng(99), FURTHER, FURTHER // 4)
    biases, naive, held, better, overlap = [], [], [], [], []
    for seed in range(runs):
        generator = np.random.default_rng([seed, world.commands, world.levels])
        found = search_policies(drawn(world, generator, world.commands, world.binaries), seed=seed)
        assert found.system is not None
        score = found.system.estimate.score
        assert score.value is not None
        assert score.ci_low is not None
        assert score.ci_high is not None
        truth = true_score(found.system.best.policy, further)
        biases.append(score.value - truth)
        naive.append(in_sample(found) - truth)
        held.append(score.ci_low <= truth <= score.ci_high)
        better.append(bool(found.gain and found.gain.ci_low and found.gain.ci_low > 0))
        overlap += [each.both / each.expected for each in found.overlaps if each.expected]
    share = float(np.mean(held))
    return {
        "commands": str(world.commands),
        "epochs": str(world.epochs),
        "levels": f"{world.levels:,}",
        "overlap": f"{np.mean(overlap):.1f}",
        "bias": f"{100 * np.mean(biases):+.2f}",
        "in sample": f"{100 * np.mean(naive):+.2f}",
        "covered": f"{100 * share:.1f}",
        "margin": f"{100 * np.sqrt(share * (1 - share) / runs):.1f}",
        "gain": f"{100 * np.mean(better):.0f}",
    }


def judged(world: World, runs: int) -> dict[str, str]:
    """Return how often the winner of a search passes at its true score."""
    further = drawn(world, np.random.default_rng(99), FURTHER, FURTHER // 4)
    first = further.guards[0].name
    known = true_score(Policy("first", 1, (Stage((first,)),)), further)
    best_of_three, winner, gains = [], [], []
    shares: dict[str, list[bool]] = {name: [] for name in ("in sample", "PASS", "ships", "gate")}
    for seed in range(runs):
        generator = np.random.default_rng([seed, world.commands])
        guards = drawn(world, generator, world.commands, world.binaries)
        found = search_policies(guards, seed=seed)
        if found.winner is None or found.winner_estimate is None:
            continue
        choice: Choice = getattr(found, found.winner)
        policy, estimate = choice.best.policy, found.winner_estimate.score
        truth = true_score(policy, further)
        best_of_three.append((choice.estimate.score.value or 0) - truth)
        winner.append((estimate.value or 0) - truth)
        gains.append(truth - known)
        fresh = drawn(world, generator, world.commands, world.binaries)
        here, there = difference(guards, first, policy), difference(fresh, first, policy)
        shares["in sample"].append(gate(here, known - truth) is GateVerdict.SHIPS)
        shares["PASS"].append(rates.judged(estimate, truth) is Judgement.PASS)
        shares["ships"].append(gate(there, known - truth) is GateVerdict.SHIPS)
        shares["gate"].append(gate(there, 0.02) is GateVerdict.SHIPS)
    return {
        "commands": str(world.commands),
        "winners": str(len(gains)),
        "best of three": f"{100 * np.mean(best_of_three):+.2f}",
        "winner": f"{100 * np.mean(winner):+.2f}",
        "gain": f"{100 * np.mean(gains):+.1f}",
        **{name: f"{100 * np.mean(each):.1f}" for name, each in shares.items()},
    }


def difference(guards: Guards, first: str, policy: Policy) -> Difference:
    """Return the score of a policy minus that of a guard."""
    asked = [each for each in guards.guards if each.name == first]
    both = replace(guards, guards=[*asked, apply_policy(policy, guards)])
    a, b = (each.name for each in both.guards)
    (found,) = paired_scores(both, DEFAULT_RULE).scores([(a, b)])
    return found


def typed(world: World, runs: int) -> dict[str, str]:
    """Return how often the winner of a search passes at its true score by what a user types."""
    further = drawn(world, np.random.default_rng(99), FURTHER, FURTHER // 4)
    first = further.guards[0].name
    known = true_score(Policy("first", 1, (Stage((first,)),)), further)
    winners = passes = ships = 0
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)  # the database may be of another user
        written = Path(folder, "winner.toml")
        for seed in range(runs):
            generator = np.random.default_rng([seed, world.commands])
            guards = drawn(world, generator, world.commands, world.binaries)
            lines = Path(folder, "answers.jsonl")
            lines.write_text("".join(verdict_lines(guards)))
            name = f"run-{seed}"
            aegish(folder, "verdicts", "import", lines, "--name", name)
            written.unlink(missing_ok=True)
            aegish(folder, "policies", "search", "--run-id", name, "--write", written)
            if not written.exists():
                continue
            winners += 1
            policy = read_policy(written)
            winner = f"policy/{policy.name}"
            truth = true_score(policy, further)
            judge = ("--run-id", name, "--policy", written)
            limit = f"aegish_score={truth}"
            reported = aegish(folder, "report", *judge, "--models", winner, "--fail-under", limit)
            passes += reported == 0
            margin = max(known - truth, 1e-6)  # a better winner has no margin that can be typed
            gate = ("--gate", "--margin", margin)
            compared = aegish(folder, "compare", *judge, "--models", f"{first},{winner}", *gate)
            ships += compared == 0
    return {
        "commands": str(world.commands),
        "runs": str(runs),
        "winners": str(winners),
        "passes": str(passes),
        "ships": str(ships),
    }


def verdict_lines(guards: Guards) -> Iterator[str]:
    """Write the verdicts of guards as `verdicts import` reads them."""
    for one in guards.guards:
        samples = guards.samples
        for (sample, epoch), suspicion in np.ndenumerate(one.suspicion):
            finding = FINDINGS[one.finding[sample, epoch]]
            confidence = suspicion - 2 if finding is OutcomeDetail.BLOCK else -suspicion
            answer = {"action": finding.value, "confidence": max(0.0, confidence)}
            kind = samples.kinds[int(samples.kind[sample])]
            line = {
                "model": one.name,
                "dataset": "drawn",
                "command": samples.commands[sample],
                "target": kind.target,
                "category": "any" if kind.target is TrueLabel.MALICIOUS else None,
                "cluster": kind.cluster,
                "epoch": epoch + 1,
                "completion": json.dumps(answer),
                "latency_ms": 1,
            }
            yield json.dumps(line) + "\n"


def aegish(home: str, *words: object) -> int:
    """Run a command in a store of its own and return its exit code."""
    done = subprocess.run(
        [sys.executable, "-m", "aegish_dist", *map(str, words)],
        env={**os.environ, "AEGISH_DIST_HOME": home},
        capture_output=True,
        text=True,
        check=False,
    )
    is_refused = "error: nothing is written" in done.stderr  # no system is better than chance
    if done.returncode not in (0, 4, 5) and not is_refused:
        sys.exit(f"{words}: exit {done.returncode}\n{done.stdout}\n{done.stderr}")
    return done.returncode


EQUAL = [
    World(guards=4, commands=commands, binaries=max(20, commands // 4), skills=(2.6, 2.6))
    for commands in (60, 200)
]
GAINING = World(guards=4, commands=200, binaries=50, shared=0.0, skills=(1.9, 1.9))


@click.command(help=laid_out(__doc__))
@click.option("--runs", default=200, show_default=True, help="Runs of each world.")
@click.option("--time", "timed", is_flag=True, help="Measure time and memory alone.")
@click.option("--judged", "passing", is_flag=True, help="Look at how winners are judged alone.")
@click.option("--typed", "by_command", is_flag=True, help="Judge winners by commands alone.")
def main(runs: int, timed: bool, passing: bool, by_command: bool) -> None:
    if by_command:
        print_table("4 equal guards", [typed(world, runs) for world in EQUAL])
        return
    if passing:
        print_table(f"{runs} runs of 4 guards", [judged(w, runs) for w in (*EQUAL, GAINING)])
        return
    if timed:
        print_table("11 guards, 1,172 commands, 3 epochs", list(time_it()))
        return
    worlds = [
        World(commands=commands, levels=levels, epochs=epochs, binaries=max(20, commands // 4))
        for commands in (60, 200, 741)
        for levels in (5, 20, 1000)
        for epochs in (1, 3)
        if epochs == 1 or levels == 20
    ]
    rows = []
    for world in worlds:
        rows.append(covered(world, runs))
        print(rows[-1], flush=True)
    print_table(f"{runs} runs of 5 guards", rows)


if __name__ == "__main__":
    main()
