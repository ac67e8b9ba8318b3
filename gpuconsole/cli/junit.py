"""Results of drills as JUnit XML: one test suite per drill, one test case per expectation."""

from collections.abc import Sequence
from xml.etree import ElementTree

from msgspec import Struct

from gpuconsole.insight.drill import ExpectationOutcome, ExpectationVerdict
from gpuconsole.model.clock import format_exactly
from gpuconsole.model.text import clean


class Suite(Struct, frozen=True, kw_only=True):
    """The results of one drill, or why its file could not be run."""

    name: str
    file: str
    results: tuple[ExpectationOutcome, ...] = ()
    problems: tuple[str, ...] = ()
    """Why it could not be run."""
    seconds: float = 0.0

    @property
    def tests(self) -> int:
        return len(self.results) + len(self.problems)

    @property
    def failures(self) -> int:
        """Number of failed expectations."""
        return sum(result.verdict is ExpectationVerdict.FAILED for result in self.results)

    @property
    def errors(self) -> int:
        """Number of expectations that could not be checked."""
        return len(self.problems) + sum(result.verdict is ExpectationVerdict.PROBLEM for result in self.results)


def as_junit(suites: Sequence[Suite]) -> bytes:
    """The whole report. Characters that XML forbids are replaced."""
    root = ElementTree.Element("testsuites", {"name": "gpuconsole drill run", **_counts(suites)})
    for suite in suites:
        facts = {"name": _safe(suite.name), "file": _safe(suite.file), **_counts([suite])}
        element = ElementTree.SubElement(root, "testsuite", facts)
        for result in suite.results:
            _case(element, suite, result)
        for problem in suite.problems:
            case = ElementTree.SubElement(element, "testcase", _named(suite, "the file"))
            ElementTree.SubElement(case, "error", {"type": "problem", "message": _safe(problem)})
    ElementTree.indent(root)
    written: bytes = ElementTree.tostring(root, encoding="utf-8", xml_declaration=True)
    return written + b"\n"


def _case(suite_element: ElementTree.Element, suite: Suite, result: ExpectationOutcome) -> None:
    name = f"step {result.step} at {format_exactly(result.at)}: {result.key}".rstrip(": ")
    case = ElementTree.SubElement(suite_element, "testcase", _named(suite, name))
    match result.verdict:
        case ExpectationVerdict.FAILED:
            failure = ElementTree.SubElement(case, "failure", {"type": "expectation", "message": _safe(result.text)})
            failure.text = _safe(f"wanted {result.wanted}\ngot    {result.got}")
        case ExpectationVerdict.PROBLEM:
            ElementTree.SubElement(case, "error", {"type": "problem", "message": _safe(result.text)})
        case ExpectationVerdict.PASSED:
            pass


def _named(suite: Suite, name: str) -> dict[str, str]:
    return {"classname": _safe(suite.name), "name": _safe(name), "file": _safe(suite.file)}


def _counts(suites: Sequence[Suite]) -> dict[str, str]:
    return {
        "tests": str(sum(suite.tests for suite in suites)),
        "failures": str(sum(suite.failures for suite in suites)),
        "errors": str(sum(suite.errors for suite in suites)),
        "time": f"{sum(suite.seconds for suite in suites):.3f}",
    }


def _safe(text: str) -> str:
    """The text without terminal control characters and characters that XML forbids."""
    return "\n".join(clean(line) for line in text.split("\n"))
