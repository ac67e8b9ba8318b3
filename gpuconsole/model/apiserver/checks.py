"""AdmissionCheck and its parameters: ProvisioningRequestConfig, MultiKueueConfig and MultiKueueCluster."""

from collections import Counter

from gpuconsole.model.apiserver.forms import KIND, LABEL, LONGEST_LABEL, NODE_LABEL
from gpuconsole.model.apiserver.schema import (
    TEXT,
    SchemaRule,
    Transition,
    a_text,
    listed,
    mapped,
    one_of,
    record,
    whole,
)
from gpuconsole.model.apiserver.selectors import CONDITIONS, exactly_one, named

_checks_IMMUTABLE = Transition("field is immutable", lambda new, old: bool(new == old), "create another AdmissionCheck")
_PARAMETERS = record(
    {
        "apiGroup!": named(least=1),
        "kind!": a_text(KIND, least=1, most=LONGEST_LABEL),
        "name!": a_text(LABEL, least=1, most=LONGEST_LABEL),
    }
)
ADMISSION_CHECK = {
    "spec": record(
        {"controllerName!": a_text(least=1, most=253, rules=(_checks_IMMUTABLE,)), "parameters": _PARAMETERS},
    ),
    "status": record({"conditions": CONDITIONS}),
}
_NODE_SELECTOR = record(
    {
        "key!": a_text(NODE_LABEL, least=1, most=317),
        "valueFromProvisioningClassDetail!": a_text(least=1, most=32768),
    }
)
_RETRIES = {"backoffLimitCount": 3, "backoffBaseSeconds": 60, "backoffMaxSeconds": 1800}
PROVISIONING_REQUEST_CONFIG = {
    "spec": record(
        {
            "provisioningClassName!": named(least=1),
            "parameters": mapped(a_text(most=255), most=100),
            "managedResources": listed(TEXT, most=100, distinct=True),
            "retryStrategy": record({key: whole(default=n) for key, n in _RETRIES.items()}, default=_RETRIES),
            "podSetUpdates": record({"nodeSelector": listed(_NODE_SELECTOR, most=8, by=("key",))}),
            "podSetMergePolicy": one_of("IdenticalPodTemplates", "IdenticalWorkloadSchedulingRequirements"),
        }
    )
}


_UNIQUE = SchemaRule(
    "must be unique",
    lambda clusters: not clusters or max(Counter(clusters).values()) == 1,
    "name each cluster once",
    "duplicate",
)
MULTI_KUEUE_CONFIG = {
    "spec": record(
        {
            "clusters!": listed(a_text(most=256), least=1, most=20, rules=(_UNIQUE,)),
            "quotaManagement": one_of("Manual", "Automated"),
        }
    )
}
_KUBE_CONFIG = record(
    {"location!": a_text(least=1, most=256), "locationType": one_of("Secret", "Path", default="Secret")}
)
MULTI_KUEUE_CLUSTER = {
    "spec": record(
        {
            "clusterSource!": record(
                {"kubeConfig": _KUBE_CONFIG, "clusterProfileRef": record({"name!": a_text(least=1, most=256)})},
                rules=(exactly_one("kubeConfig", "clusterProfileRef"),),
            )
        }
    ),
    "status": record({"conditions": CONDITIONS}),
}
