"""Resources that count as others: outputs add up, allowances only reduce outputs, excluded resources are dropped."""

import pytest
from msgspec import Struct

from gpuconsole.model.pod_template import Container, PodSet, PodTemplate
from gpuconsole.model.resources import MAX, Resources
from gpuconsole.model.workloads import Workload
from gpuconsole.scheduling.kueue.config import REPLACE, RETAIN, KueueConfig, Transformation
from gpuconsole.scheduling.kueue.pod_resources import WorkloadRequest


class Case(Struct, kw_only=True):
    asked: Resources
    rules: tuple[Transformation, ...] = ()
    excluded: tuple[str, ...] = ()
    count: int = 1
    want: Resources


OVER_ONE_GIB = (
    Transformation(input="gpumem", strategy=REPLACE, multiply_by="gpu", outputs={"overage": "1"}),
    Transformation(input="gpu", strategy=RETAIN, outputs={"overage": "-1024"}),
)

CASES = {
    "a replaced input is gone": Case(
        asked={"mig": 2, "cpu": 1000},
        rules=(Transformation(input="mig", strategy=REPLACE, outputs={"credits": "10", "memory": "5Ki"}),),
        want={"cpu": 1000, "credits": 20, "memory": 10240},
    ),
    "a retained input counts beside its outputs, which is what happens if nothing is said": Case(
        asked={"gpu": 1},
        rules=(Transformation(input="gpu", outputs={"credits": "100"}),),
        count=3,
        want={"gpu": 3, "credits": 300},
    ),
    "inputs that share an output add up": Case(
        asked={"a": 1, "b": 2},
        rules=(
            Transformation(input="a", strategy=REPLACE, outputs={"credits": "10"}),
            Transformation(input="b", strategy=REPLACE, outputs={"credits": "7"}),
        ),
        want={"credits": 24},
    ),
    "another resource multiplies the output, never the input": Case(
        asked={"gpumem": 1024, "gpu": 2},
        rules=(Transformation(input="gpumem", multiply_by="gpu", outputs={"quota": "1"}),),
        want={"gpumem": 1024, "gpu": 2, "quota": 2048},
    ),
    "a multiplier that the pod does not ask for is none": Case(
        asked={"gpumem": 1024},
        rules=(Transformation(input="gpumem", strategy=REPLACE, multiply_by="gpu", outputs={"quota": "1"}),),
        want={"quota": 1024},
    ),
    "half a core multiplies by a half": Case(
        asked={"gpumem": 1024, "cpu": 500},
        rules=(Transformation(input="gpumem", multiply_by="cpu", outputs={"quota": "1"}),),
        want={"gpumem": 1024, "cpu": 500, "quota": 512},
    ),
    "cpu counts in cores, factors may be fractions": Case(
        asked={"cpu": 100, "memory": 100_000_000},
        rules=(
            Transformation(input="cpu", strategy=REPLACE, outputs={"cpu-credits": "3000"}),
            Transformation(input="memory", strategy=REPLACE, outputs={"memory-credits": "3m"}),
        ),
        want={"cpu-credits": 300, "memory-credits": 300_000},
    ),
    "what exceeds the allowance is charged": Case(
        asked={"gpumem": 2048, "gpu": 2}, rules=OVER_ONE_GIB, want={"gpu": 2, "overage": 2048}
    ),
    "an allowance that is not used up is no credit": Case(
        asked={"gpumem": 512, "gpu": 2}, rules=OVER_ONE_GIB, want={"gpu": 2, "overage": 0}
    ),
    "an allowance takes nothing from what the pod asks for itself": Case(
        asked={"gpu": 8, "credit": 3},
        rules=(Transformation(input="credit", strategy=REPLACE, outputs={"gpu": "-1"}),),
        want={"gpu": 8},
    ),
    "an output of the name of a request is added to it": Case(
        asked={"gpu": 1, "node": 2},
        rules=(Transformation(input="gpu", multiply_by="node", outputs={"gpu": "1"}),),
        want={"gpu": 3, "node": 2},
    ),
    "an output that is too large is the largest amount": Case(
        asked={"credit": 10**10},
        rules=(Transformation(input="credit", strategy=REPLACE, outputs={"gpu": "10000000000"}),),
        want={"gpu": MAX},
    ),
    "excluded resources are dropped before anything is transformed": Case(
        asked={"net.example.com/vpc": 1, "gpu": 1},
        rules=(Transformation(input="net.example.com/vpc", outputs={"credits": "5"}),),
        excluded=("net.example.com/",),
        want={"gpu": 1},
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_requests_count_as_configured(case: Case) -> None:
    template = PodTemplate(containers=(Container(requests=case.asked),))
    workload = Workload(name="w", pod_sets=(PodSet(count=case.count, template=template),))
    rules = {rule.input: rule for rule in case.rules}
    config = KueueConfig(transformations=rules, exclude_resource_prefixes=case.excluded)
    assert WorkloadRequest(workload, 0, "q", config).pod_sets[0].total == case.want
