"""volcano/scheduler_plugins_deviceshare and the cards that a pod was given."""

from collections.abc import Sequence

from gpuconsole.scheduling.volcano.plugins.deviceshare import Card, choose_cards, gpu_indices, matching_rules
from tests.conformance.tables import Case, Check, Table, compare
from tests.conformance.volcano import objects


def _rules(table: Table, case: Case) -> Sequence[str]:
    rules = [rule["labels"] for rule in table.fixtures["rules"]]
    got = matching_rules(objects.pod(case.input["pod"]), rules)
    return [*compare("rules", len(got), case.want["expectedLen"])]


def _rule(table: Table, case: Case) -> Sequence[str]:
    rules = [rule["labels"] for rule in table.fixtures["rules"]]
    got = case.input["ruleIdx"] in matching_rules(objects.pod(case.input["pod"]), rules)
    return [*compare("matches", got, case.want["expected"])]


def _filter(table: Table, case: Case) -> Sequence[str]:
    cards = []
    for index, listed in case.input["Devices"]["Device"].items():
        if listed.get("PodMap") or listed.get("UsedNum"):
            return ["cards that are in use are not written in a way that can be read"]
        cards.append(Card(int(index), listed.get("Memory", 0), listed.get("Number", 0), listed.get("Type", "")))
    got = choose_cards(objects.pod(case.input["Pod"]), cards, "")
    return [*compare("error", got is None, case.want["HasError"])]


def _indices(table: Table, case: Case) -> Sequence[str]:
    return [*compare("cards", list(gpu_indices(objects.pod(case.input["pod"]))), case.want.get("want") or [])]


_P = "volcano/scheduler_plugins_deviceshare/"

CHECKS: dict[str, Check] = {
    _P + "TestMatchingRules": _rules,
    _P + "TestPodMatchesRule": _rule,
    _P + "Test_FilterNode": _filter,
    "volcano/scheduler_api/TestGetGPUIndex": _indices,
}
