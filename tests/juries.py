"""Simulated models that judge commands of which some carry a wrong label.

A model is right with the log odds `ability - difficulty`. Difficulty varies by command and by
binary, and some commands are so hard that most models really miss them.
"""

import math
import random
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from msgspec import Struct

from aegish_dist.core.outcome import OutcomeDetail
from aegish_dist.core.sample import TrueLabel
from aegish_dist.core.tally import SampleAnswers

MALICIOUS, HARMLESS = 676, 496
FAMILIES = 2
OTHER = {
    TrueLabel.MALICIOUS: TrueLabel.HARMLESS,
    TrueLabel.HARMLESS: TrueLabel.MALICIOUS,
}
CLUSTER_SIZES = (1, 1, 1, 1, 2, 2, 3, 4)
"""Sizes of clusters, drawn with replacement; two on average, as of the bundled data sets."""


class Setting(Struct, frozen=True):
    models: int  # distinct models, of a skill between 0.6 and 0.98
    hard: float = 0.06
    harder_by: float = 4.0
    within_clusters: float = 0.3  # share of the variance of difficulty that a cluster has in common
    together: float = 0.0
    """Share of commands about which a model has the same luck as others of its family, of two."""
    copies: int = 0  # further models that repeat the weakest one, but for 3 % of the commands
    baselines: bool = True
    """Whether a model that always blocks and one that always allows are there."""
    warns: bool = True
    """Whether models that let a command pass warn, more often about malicious ones."""
    epochs: int = 1
    planted: int = 100
    samples: tuple[int, int] = (MALICIOUS, HARMLESS)


class Jury(Struct, frozen=True):
    models: tuple[str, ...]
    samples: tuple[SampleAnswers, ...]
    wrong: frozenset[str]  # ids of the samples whose label is wrong


class _Command(NamedTuple):
    truth: TrueLabel
    cluster: str
    difficulty: float


def simulate_jury(setting: Setting, seed: int) -> Jury:
    """Ask simulated models about commands, then turn some labels over."""
    chance = random.Random(seed)
    commands = _commands(setting, chance)
    of_families = random.Random(f"families {seed}")
    families = [[of_families.random() for _ in commands] for _ in range(FAMILIES)]
    answers = []
    for number in range(setting.models):
        skill = 0.6 + 0.38 * number / max(1, setting.models - 1)
        answers.append(_answers(setting, chance, commands, skill, families[number % FAMILIES]))
    answers += [_copy(chance, answers[0]) for _ in range(setting.copies)]
    if setting.baselines:
        constant = (OutcomeDetail.BLOCK, OutcomeDetail.ALLOW)
        answers += [[[action] * setting.epochs for _ in commands] for action in constant]
    models = tuple(f"lab/{number}" for number in range(len(answers)))
    wrong = set(chance.sample(range(len(commands)), setting.planted))
    samples = []
    for number, (truth, cluster, _) in enumerate(commands):
        label = OTHER[truth] if number in wrong else truth
        said = {
            model: tuple(sorted(Counter(each[number]).items()))
            for model, each in zip(models, answers, strict=True)
        }
        what = ("commands", str(number), f"command {number}")
        samples.append(SampleAnswers(*what, label, None, cluster, said))
    return Jury(models, tuple(samples), frozenset(map(str, wrong)))


def _commands(setting: Setting, chance: random.Random) -> list[_Command]:
    shared, own = math.sqrt(setting.within_clusters), math.sqrt(1 - setting.within_clusters)
    commands: list[_Command] = []
    for truth, wanted in zip(OTHER, setting.samples, strict=True):
        first = len(commands)
        while len(commands) < first + wanted:
            of_cluster, cluster = chance.gauss(), f"binary-{len(commands) - first}"
            for _ in range(min(chance.choice(CLUSTER_SIZES), first + wanted - len(commands))):
                harder = setting.harder_by * (chance.random() < setting.hard)
                difficulty = shared * of_cluster + own * chance.gauss() + harder
                commands.append(_Command(truth, cluster, difficulty))
    return commands


def _answers(
    setting: Setting,
    chance: random.Random,
    commands: Sequence[_Command],
    skill: float,
    family: Sequence[float],
) -> list[list[OutcomeDetail]]:
    """Return what a model says, whose skill is the mean of its two rates."""
    detection = min(0.985, max(0.5, skill + chance.gauss(0, 0.05)))
    acceptance = min(0.99, max(0.5, 2 * skill - detection))
    ability = {
        truth: _ability(rate, [each.difficulty for each in commands if each.truth is truth])
        for truth, rate in ((TrueLabel.MALICIOUS, detection), (TrueLabel.HARMLESS, acceptance))
    }
    return [
        [_action(setting, chance, each, ability[each.truth], luck) for _ in range(setting.epochs)]
        for each, luck in zip(commands, family, strict=True)
    ]


def _action(
    setting: Setting, chance: random.Random, command: _Command, ability: float, luck: float
) -> OutcomeDetail:
    if not setting.together or chance.random() >= setting.together:
        luck = chance.random()
    right = luck < _logistic(ability - command.difficulty)
    malicious = command.truth is TrueLabel.MALICIOUS
    if right is malicious:
        return OutcomeDetail.BLOCK
    warns = setting.warns and chance.random() < (0.6 if malicious else 0.08)
    return OutcomeDetail.WARN if warns else OutcomeDetail.ALLOW


def _copy(
    chance: random.Random, answers: Sequence[list[OutcomeDetail]]
) -> list[list[OutcomeDetail]]:
    turned = {
        OutcomeDetail.BLOCK: OutcomeDetail.ALLOW,
        OutcomeDetail.ALLOW: OutcomeDetail.BLOCK,
        OutcomeDetail.WARN: OutcomeDetail.BLOCK,
    }
    return [
        [turned[each] if chance.random() < 0.03 else each for each in epochs] for epochs in answers
    ]


def _ability(rate: float, difficulties: Sequence[float]) -> float:
    """Return the ability that is right about a share of commands, by bisection."""
    low, high = -10.0, 20.0
    for _ in range(40):
        middle = (low + high) / 2
        mean = math.fsum(_logistic(middle - each) for each in difficulties) / len(difficulties)
        low, high = (middle, high) if mean < rate else (low, middle)
    return low


def _logistic(x: float) -> float:
    return 1 / (1 + math.exp(-x))
