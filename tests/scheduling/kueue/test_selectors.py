"""Selectors of devices: what expressions say of a device, what is wrong with them, and that none takes long."""

from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuconsole.model.devices import Device, DeviceCapacity, Version
from gpuconsole.scheduling.devices.allocator import compile_error, matches_device
from gpuconsole.scheduling.devices.cel.evaluation import EvaluationError
from gpuconsole.scheduling.kueue.dra.claims import ClaimError, compile_selectors

DRIVER = "gpu.example.com"
CARD = Device(
    name="gpu-0",
    attributes={
        "type": "gpu",
        "index": 3,
        "healthy": True,
        "productName": "NVIDIA A100-SXM4-80GB",
        "driverVersion": Version("550.54.15"),
        "resource.kubernetes.io/pcieRoot": "pci0000:20",
    },
    capacity={"memory": DeviceCapacity(80 * 2**30)},
)
HERE = 'device.attributes["gpu.example.com"]'

TRUE = [
    'device.driver == "gpu.example.com"',
    f"{HERE}.type == 'gpu' && {HERE}.index >= 3",
    f'{HERE}["type"] == "gpu"',
    f"!({HERE}.index < 3) || false",
    f'{HERE}.type in ["gpu", "mig"]',
    f'"type" in {HERE} && !("color" in {HERE})',
    f"has({HERE}.type) && !has({HERE}.color)",
    'has(device.attributes["nobody.example.com"].type) ? false : true',
    f'{HERE}.productName.lowerAscii().matches("^.*a100.*$")',
    f'{HERE}.productName.startsWith("NVIDIA") && {HERE}.productName.endsWith("80GB")',
    f'{HERE}.productName.contains("SXM4") && size({HERE}.type) == 3',
    f'{HERE}.driverVersion.isGreaterThan(semver("550.54.9")) && {HERE}.driverVersion.major() == 550',
    f'{HERE}.driverVersion.isLessThan(semver("550.54.16-rc.1"))',
    'device.capacity["gpu.example.com"].memory.compareTo(quantity("40Gi")) >= 0',
    'device.capacity["gpu.example.com"].memory == quantity("80Gi")',
    'device.attributes["resource.kubernetes.io"].pcieRoot == "pci0000:20"',
    f"cel.bind(card, {HERE}, card.healthy && card.index * 2 + 1 == 7)",
    f"{HERE}.color == 'red' || true",
    f"!(false && {HERE}.color == 'red')",
    f"{HERE}.index == 3.0 && -7 / 2 == -3 && -7 % 2 == -1",
    r'r"\d" == "\\d" && "a\tb" == "a	b"',
    '{"a": [1, 2]}["a"][1] == 2',
]


@pytest.mark.parametrize("expression", TRUE)
def test_what_is_true_of_a_device(expression: str) -> None:
    assert matches_device(compile_selectors([expression], "p", "c"), DRIVER, CARD)
    assert not matches_device(compile_selectors([f"!({expression})"], "p", "c"), DRIVER, CARD)


def test_all_selectors_have_to_agree() -> None:
    trees = compile_selectors([TRUE[0], "", f"{HERE}.index > 3"], "p", "c")
    assert not matches_device(trees, DRIVER, CARD)
    assert matches_device(trees[:1], DRIVER, CARD)


UNDECIDED = {
    f"{HERE}.color == 'red'": "no such key: color",
    'device.attributes["nobody.example.com"].type == "gpu"': "no such key: type",
    f"{HERE}.index": "must evaluate to bool",
    f"{HERE}.index > 'three'": "no such overload: >",
    f"{HERE}.type + 1 == 2": "no such overload: +",
    "1 / 0 == 1": "division by zero",
    "9223372036854775807 + 1 > 0": "integer overflow",
    "[1][1] == 1": "index out of bounds: 1",
    "quantity('many') == quantity('1')": "quantities must match the regular expression",
    "semver('1') == semver('1.0.0')": "No Major.Minor.Patch elements found in '1'",
    f"{HERE}.type.matches('(a+)+b')": "the regular expression is too complex",
    f"{HERE}.type.matches('a*a*a*a*a*b')": "the regular expression is too complex",
    f"{HERE}.type.matches('[')": "error parsing regexp: [",
    f"{HERE}.type.matches('[[:alpha:]]')": "the regular expression is too complex",
}


@pytest.mark.parametrize(("expression", "problem"), UNDECIDED.items())
def test_what_has_no_answer_says_why(expression: str, problem: str) -> None:
    with pytest.raises(EvaluationError) as raised:
        matches_device(compile_selectors([expression], "p", "c"), DRIVER, CARD)
    assert str(raised.value) == problem


def test_an_attribute_of_an_unknown_kind_is_an_error() -> None:
    card = Device(name="g", attributes={"type": None})
    with pytest.raises(EvaluationError, match=r"^attribute gpu\.example\.com/type: unsupported attribute value$"):
        matches_device(compile_selectors(["true"], "p", "c"), DRIVER, card)


class Broken(NamedTuple):
    expression: str
    column: int
    problem: str


BROKEN = [
    Broken("device.driver ==", 17, "Syntax error: mismatched input '<EOF>'"),
    Broken("device.driver = 'x'", 15, "Syntax error: token recognition error at: '='"),
    Broken("gadget.driver == 'x'", 1, "undeclared reference to 'gadget' (in container '')"),
    Broken("device.driver.shout() == 'X'", 15, "undeclared reference to 'shout' (in container '')"),
    Broken("has(device)", 1, "invalid argument to has() macro"),
    Broken("cel.bind(a, 1, a) == a", 22, "undeclared reference to 'a' (in container '')"),
    Broken("(" * 40 + "true" + ")" * 40, 31, "expression is nested too deep"),
    Broken("1" + "+1" * 200 + " == 1", 1, "expression is nested too deep"),
]


@pytest.mark.parametrize("case", BROKEN, ids=lambda case: case.expression[:30])
def test_what_cannot_be_read_is_told_with_its_place(case: Broken) -> None:
    with pytest.raises(ClaimError) as raised:
        compile_selectors(["true", case.expression], "selectors", "CEL compilation failed")
    (problem,) = raised.value.problems
    assert problem.field == "selectors[1].cel.expression"
    told = f"CEL compilation failed: compilation failed: ERROR: <input>:1:{case.column}: {case.problem}\n | "
    assert problem.detail.startswith(told)
    assert compile_error(case.expression)
    assert not compile_error("true")


def test_nothing_grows_without_end() -> None:
    doubled = "x"
    for _ in range(25):
        doubled = f"cel.bind(x, {doubled} + {doubled}, x)"
    expression = f"cel.bind(x, 'xxxxxxxxxxxxxxxx', {doubled}) == 'x'"
    if not compile_error(expression):
        with pytest.raises(EvaluationError, match="the value is too long"):
            matches_device(compile_selectors([expression], "p", "c"), DRIVER, CARD)
    assert compile_error("'" + "x" * 20_000 + "' == 'x'")


@given(st.text(alphabet="device.attributes[\"'](){}&|!=<>+-*/%?:, 12ab\\\n", max_size=80) | st.text(max_size=40))
def test_any_text_is_read_or_refused(expression: str) -> None:
    try:
        trees = compile_selectors([expression], "p", "c")
        matches_device(trees, DRIVER, CARD)
    except (ClaimError, EvaluationError):
        pass
