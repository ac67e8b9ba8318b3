"""Schema of a pod template in Kueue's Workload: all fields of core/v1, without the validation that only pods get."""

from gpuconsole.model.apiserver.containers import (
    CONTAINER,
    EPHEMERAL_CONTAINER,
    NAME_AND_VALUE,
    PROFILE,
    RESOURCES,
    SELINUX,
    WINDOWS,
)
from gpuconsole.model.apiserver.schema import AMOUNTS, INT_64, LABELS, listed, record
from gpuconsole.model.apiserver.selectors import LABEL_SELECTOR, LOCAL_REFERENCE, POD_METADATA, REQUIREMENT, TOLERATION
from gpuconsole.model.apiserver.volumes import VOLUME

NODE_SELECTOR_TERM = record({"matchExpressions": listed(REQUIREMENT), "matchFields": listed(REQUIREMENT)})
PREFERRED_NODES = record({"preference!": NODE_SELECTOR_TERM}, int32="weight!")
REQUIRED_NODES = record({"nodeSelectorTerms!": listed(NODE_SELECTOR_TERM)})
NODE_AFFINITY = record(
    {
        "preferredDuringSchedulingIgnoredDuringExecution": listed(PREFERRED_NODES),
        "requiredDuringSchedulingIgnoredDuringExecution": REQUIRED_NODES,
    }
)
POD_AFFINITY_TERM = record(
    {"labelSelector": LABEL_SELECTOR, "namespaceSelector": LABEL_SELECTOR},
    texts="matchLabelKeys mismatchLabelKeys namespaces",
    text="topologyKey!",
)
PREFERRED_PODS = record({"podAffinityTerm!": POD_AFFINITY_TERM}, int32="weight!")
POD_AFFINITY = record(
    {
        "preferredDuringSchedulingIgnoredDuringExecution": listed(PREFERRED_PODS),
        "requiredDuringSchedulingIgnoredDuringExecution": listed(POD_AFFINITY_TERM),
    }
)
AFFINITY = record({"nodeAffinity": NODE_AFFINITY, "podAffinity": POD_AFFINITY, "podAntiAffinity": POD_AFFINITY})
DNS_OPTION = record(text="name value")
DNS_CONFIG = record({"options": listed(DNS_OPTION)}, texts="nameservers searches")
HOST_ALIAS = record(texts="hostnames", text="ip!")
NAME_ONLY = record(text="name!")
READINESS_GATE = record(text="conditionType!")
RESOURCE_CLAIM = record(text="name! resourceClaimName resourceClaimTemplateName")
SCHEDULING_GROUP = record(text="podGroupName")
POD_SECURITY = record(
    {
        "appArmorProfile": PROFILE,
        "seLinuxOptions": SELINUX,
        "seccompProfile": PROFILE,
        "supplementalGroups": listed(INT_64),
        "sysctls": listed(NAME_AND_VALUE),
        "windowsOptions": WINDOWS,
    },
    int64="fsGroup runAsGroup runAsUser",
    text="fsGroupChangePolicy seLinuxChangePolicy supplementalGroupsPolicy",
    flag="runAsNonRoot",
)
SPREAD_CONSTRAINT = record(
    {"labelSelector": LABEL_SELECTOR},
    texts="matchLabelKeys",
    int32="maxSkew! minDomains",
    text="nodeAffinityPolicy nodeTaintsPolicy topologyKey! whenUnsatisfiable!",
)
POD_SPEC = record(
    {
        "affinity": AFFINITY,
        "containers!": listed(CONTAINER, by=("name",)),
        "dnsConfig": DNS_CONFIG,
        "ephemeralContainers": listed(EPHEMERAL_CONTAINER, by=("name",)),
        "hostAliases": listed(HOST_ALIAS, by=("ip",)),
        "imagePullSecrets": listed(LOCAL_REFERENCE, by=("name",)),
        "initContainers": listed(CONTAINER, by=("name",)),
        "nodeSelector": LABELS,
        "os": NAME_ONLY,
        "overhead": AMOUNTS,
        "readinessGates": listed(READINESS_GATE),
        "resourceClaims": listed(RESOURCE_CLAIM, by=("name",)),
        "resources": RESOURCES,
        "schedulingGates": listed(NAME_ONLY, by=("name",)),
        "schedulingGroup": SCHEDULING_GROUP,
        "securityContext": POD_SECURITY,
        "tolerations": listed(TOLERATION),
        "topologySpreadConstraints": listed(SPREAD_CONSTRAINT, by=("topologyKey", "whenUnsatisfiable")),
        "volumes": listed(VOLUME, by=("name",)),
    },
    int64="activeDeadlineSeconds terminationGracePeriodSeconds",
    flag="automountServiceAccountToken enableServiceLinks hostIPC hostNetwork hostPID hostUsers setHostnameAsFQDN "
    "shareProcessNamespace",
    text="dnsPolicy hostname hostnameOverride nodeName preemptionPolicy priorityClassName restartPolicy "
    "runtimeClassName schedulerName serviceAccount serviceAccountName subdomain",
    int32="priority",
)
POD_TEMPLATE = record({"metadata": POD_METADATA, "spec": POD_SPEC})
