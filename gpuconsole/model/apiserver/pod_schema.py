"""Schema of a pod template in Kueue's Workload (core/v1), without the validation that only pods get.

Containers and volumes have all fields of core/v1. The parts that other kinds share, such as selectors, tolerations and
names, are here, too.
"""

from collections.abc import Mapping
from typing import Any

from gpuconsole.model.apiserver.schema import (
    AMOUNTS,
    INT_32,
    INT_64,
    INT_OR_TEXT,
    LABELS,
    LONGEST_LABEL,
    LONGEST_SUBDOMAIN,
    MOMENT,
    NODE_LABEL,
    REASON,
    TEXTS,
    Empty,
    Schema,
    SchemaRule,
    Transition,
    a_flag,
    a_text,
    listed,
    one_of,
    quantity,
    record,
    whole,
)
from gpuconsole.model.documents.findings import LABEL, SUBDOMAIN
from gpuconsole.model.documents.reader import INT64

KEY_SELECTOR = record({"name": a_text(default="")}, text="key!", flag="optional")
FIELD_REF = record(text="apiVersion fieldPath!")
FILE_KEY_SELECTOR = record({"optional": a_flag(False)}, text="key! path! volumeName!")
RESOURCE_FIELD = record({"divisor": quantity()}, text="containerName resource!")
ENV_SOURCE = record(
    {
        "configMapKeyRef": KEY_SELECTOR,
        "fieldRef": FIELD_REF,
        "fileKeyRef": FILE_KEY_SELECTOR,
        "resourceFieldRef": RESOURCE_FIELD,
        "secretKeyRef": KEY_SELECTOR,
    }
)
ENV_VARIABLE = record({"valueFrom": ENV_SOURCE}, text="name! value")
OPTIONAL_REFERENCE = record({"name": a_text(default="")}, flag="optional")
ENV_FROM = record({"configMapRef": OPTIONAL_REFERENCE, "secretRef": OPTIONAL_REFERENCE}, text="prefix")
EXEC_ACTION = record(texts="command")
NAME_AND_VALUE = record(text="name! value!")
HTTP_ACTION = record({"httpHeaders": listed(NAME_AND_VALUE), "port!": INT_OR_TEXT}, text="host path scheme")
SLEEP_ACTION = record(int64="seconds!")
TCP_ACTION = record({"port!": INT_OR_TEXT}, text="host")
LIFECYCLE_HANDLER = record(
    {"exec": EXEC_ACTION, "httpGet": HTTP_ACTION, "sleep": SLEEP_ACTION, "tcpSocket": TCP_ACTION}
)
LIFECYCLE = record({"postStart": LIFECYCLE_HANDLER, "preStop": LIFECYCLE_HANDLER}, text="stopSignal")
GRPC_ACTION = record({"service": a_text(default="")}, int32="port!")
PROBE = record(
    {"exec": EXEC_ACTION, "grpc": GRPC_ACTION, "httpGet": HTTP_ACTION, "tcpSocket": TCP_ACTION},
    int32="failureThreshold initialDelaySeconds periodSeconds successThreshold timeoutSeconds",
    int64="terminationGracePeriodSeconds",
)
PORT = record({"protocol": a_text(default="TCP")}, int32="containerPort! hostPort", text="hostIP name")
RESIZE_RULE = record(text="resourceName! restartPolicy!")
CLAIM = record(text="name! request")
RESOURCES = record({"claims": listed(CLAIM, by=("name",)), "limits": AMOUNTS, "requests": AMOUNTS}, empty=Empty.DROPPED)
EXIT_CODES = record({"values": listed(INT_32, distinct=True)}, text="operator!")
RESTART_RULE = record({"exitCodes": EXIT_CODES}, text="action!")
PROFILE = record(text="localhostProfile type!")
CAPABILITIES = record(texts="add drop")
SELINUX = record(text="level role type user")
WINDOWS = record(text="gmsaCredentialSpec gmsaCredentialSpecName runAsUserName", flag="hostProcess")
CONTAINER_SECURITY = record(
    {
        "appArmorProfile": PROFILE,
        "capabilities": CAPABILITIES,
        "seLinuxOptions": SELINUX,
        "seccompProfile": PROFILE,
        "windowsOptions": WINDOWS,
    },
    flag="allowPrivilegeEscalation privileged readOnlyRootFilesystem runAsNonRoot",
    text="procMount",
    int64="runAsGroup runAsUser",
)
VOLUME_DEVICE = record(text="devicePath! name!")
VOLUME_MOUNT = record(text="mountPath! mountPropagation name! recursiveReadOnly subPath subPathExpr", flag="readOnly")
_CONTAINER_PARTS = {
    "env": listed(ENV_VARIABLE, by=("name",)),
    "envFrom": listed(ENV_FROM),
    "lifecycle": LIFECYCLE,
    "livenessProbe": PROBE,
    "ports": listed(PORT, by=("containerPort", "protocol")),
    "readinessProbe": PROBE,
    "resizePolicy": listed(RESIZE_RULE),
    "resources": RESOURCES,
    "restartPolicyRules": listed(RESTART_RULE),
    "securityContext": CONTAINER_SECURITY,
    "startupProbe": PROBE,
    "volumeDevices": listed(VOLUME_DEVICE, by=("devicePath",)),
    "volumeMounts": listed(VOLUME_MOUNT, by=("mountPath",)),
}
CONTAINER = record(
    _CONTAINER_PARTS,
    texts="args command",
    text="image imagePullPolicy name! restartPolicy terminationMessagePath terminationMessagePolicy workingDir",
    flag="stdin stdinOnce tty",
)
EPHEMERAL_CONTAINER = record(
    _CONTAINER_PARTS,
    texts="args command",
    text="image imagePullPolicy name! restartPolicy targetContainerName terminationMessagePath "
    "terminationMessagePolicy workingDir",
    flag="stdin stdinOnce tty",
)


POD_METADATA = record({"annotations": LABELS, "labels": LABELS}, texts="finalizers", text="name namespace")
REQUIREMENT = record({"key!": a_text(zero=""), "operator!": a_text(zero=""), "values": TEXTS})
LABEL_SELECTOR = record({"matchExpressions": listed(REQUIREMENT), "matchLabels": LABELS})
LOCAL_REFERENCE = record({"name": a_text(default="")})
TOLERATION = record(text="effect key operator value", int64="tolerationSeconds")


def named(
    *,
    least: int | None = None,
    empty: Empty = Empty.DROPPED,
    zero: str | None = None,
    rules: tuple[Transition, ...] = (),
) -> Schema:
    """Schema of an object's name."""
    return a_text(SUBDOMAIN, least=least, most=LONGEST_SUBDOMAIN, empty=empty, zero=zero, rules=rules)


def pod_set_name(default: str | None = None) -> Schema:
    """Schema of a pod set's name."""
    return a_text(LABEL, most=LONGEST_LABEL, default=default)


def exactly_one(*fields: str) -> SchemaRule:
    """Return the rule that an object sets exactly one of these fields."""

    def holds(place: Mapping[str, Any]) -> bool:
        return sum(field in place for field in fields) == 1

    message = f"exactly one of the fields in [{' '.join(fields)}] must be set"
    return SchemaRule(message, holds, f"write either {' or '.join(fields)}")


WEIGHT = record({"weight": quantity(1)})
"""Schema of fairSharing in a queue or cohort."""
STOP_POLICY = one_of("None", "Hold", "HoldAndDrain", default="None", empty=Empty.KEPT)
CONDITIONS = listed(
    record(
        {
            "lastTransitionTime!": MOMENT,
            "message!": a_text(most=32768),
            "observedGeneration": whole(0, INT64),
            "reason!": a_text(REASON, least=1, most=1024),
            "status!": one_of("True", "False", "Unknown"),
            "type!": a_text(NODE_LABEL, most=316),
        }
    ),
    most=16,
    by=("type",),
)


AWS_ELASTIC_BLOCK_STORE = record(text="fsType volumeID!", int32="partition", flag="readOnly")
AZURE_DISK = record(
    {"fsType": a_text(default="ext4"), "readOnly": a_flag(False)}, text="cachingMode diskName! diskURI! kind"
)
AZURE_FILE = record(flag="readOnly", text="secretName! shareName!")
CEPHFS = record({"secretRef": LOCAL_REFERENCE}, texts="monitors!", text="path secretFile user", flag="readOnly")
CINDER = record({"secretRef": LOCAL_REFERENCE}, text="fsType volumeID!", flag="readOnly")
KEY_TO_PATH = record(text="key! path!", int32="mode")
CONFIG_MAP = record({"items": listed(KEY_TO_PATH), "name": a_text(default="")}, int32="defaultMode", flag="optional")
CSI = record(
    {"nodePublishSecretRef": LOCAL_REFERENCE, "volumeAttributes": LABELS}, text="driver! fsType", flag="readOnly"
)
DOWNWARD_FILE = record({"fieldRef": FIELD_REF, "resourceFieldRef": RESOURCE_FIELD}, int32="mode", text="path!")
DOWNWARD_API = record({"items": listed(DOWNWARD_FILE)}, int32="defaultMode")
EMPTY_DIR = record({"sizeLimit": quantity()}, text="medium")
DATA_SOURCE = record(text="apiGroup kind! name!")
DATA_SOURCE_REF = record(text="apiGroup kind! name! namespace")
VOLUME_RESOURCES = record({"limits": AMOUNTS, "requests": AMOUNTS})
CLAIM_SPEC = record(
    {
        "dataSource": DATA_SOURCE,
        "dataSourceRef": DATA_SOURCE_REF,
        "resources": VOLUME_RESOURCES,
        "selector": LABEL_SELECTOR,
    },
    texts="accessModes",
    text="storageClassName volumeAttributesClassName volumeMode volumeName",
)
CLAIM_TEMPLATE = record({"metadata": POD_METADATA, "spec!": CLAIM_SPEC})
EPHEMERAL = record({"volumeClaimTemplate": CLAIM_TEMPLATE})
FC = record(text="fsType", int32="lun", flag="readOnly", texts="targetWWNs wwids")
FLEX_VOLUME = record({"options": LABELS, "secretRef": LOCAL_REFERENCE}, text="driver! fsType", flag="readOnly")
FLOCKER = record(text="datasetName datasetUUID")
GCE_PERSISTENT_DISK = record(text="fsType pdName!", int32="partition", flag="readOnly")
GIT_REPO = record(text="directory repository! revision")
GLUSTERFS = record(text="endpoints! path!", flag="readOnly")
HOST_PATH = record(text="path! type")
IMAGE = record(text="pullPolicy reference")
ISCSI = record(
    {"iscsiInterface": a_text(default="default"), "secretRef": LOCAL_REFERENCE},
    flag="chapAuthDiscovery chapAuthSession readOnly",
    text="fsType initiatorName iqn! targetPortal!",
    int32="lun!",
    texts="portals",
)
NFS = record(text="path! server!", flag="readOnly")
PERSISTENT_VOLUME_CLAIM = record(text="claimName!", flag="readOnly")
PHOTON_PERSISTENT_DISK = record(text="fsType pdID!")
PORTWORX_VOLUME = record(text="fsType volumeID!", flag="readOnly")
CLUSTER_TRUST_BUNDLE = record({"labelSelector": LABEL_SELECTOR}, text="name path! signerName", flag="optional")
PROJECTED_KEYS = record({"items": listed(KEY_TO_PATH), "name": a_text(default="")}, flag="optional")
PROJECTED_DOWNWARD_API = record({"items": listed(DOWNWARD_FILE)})
POD_CERTIFICATE = record(
    {"userAnnotations": LABELS},
    text="certificateChainPath credentialBundlePath keyPath keyType! signerName!",
    int32="maxExpirationSeconds",
)
SERVICE_ACCOUNT_TOKEN = record(text="audience path!", int64="expirationSeconds")
PROJECTION = record(
    {
        "clusterTrustBundle": CLUSTER_TRUST_BUNDLE,
        "configMap": PROJECTED_KEYS,
        "downwardAPI": PROJECTED_DOWNWARD_API,
        "podCertificate": POD_CERTIFICATE,
        "secret": PROJECTED_KEYS,
        "serviceAccountToken": SERVICE_ACCOUNT_TOKEN,
    }
)
PROJECTED = record({"sources": listed(PROJECTION)}, int32="defaultMode")
QUOBYTE = record(text="group registry! tenant user volume!", flag="readOnly")
RBD = record(
    {
        "keyring": a_text(default="/etc/ceph/keyring"),
        "pool": a_text(default="rbd"),
        "secretRef": LOCAL_REFERENCE,
        "user": a_text(default="admin"),
    },
    text="fsType image!",
    texts="monitors!",
    flag="readOnly",
)
SCALE_IO = record(
    {"fsType": a_text(default="xfs"), "secretRef!": LOCAL_REFERENCE, "storageMode": a_text(default="ThinProvisioned")},
    text="gateway! protectionDomain storagePool system! volumeName",
    flag="readOnly sslEnabled",
)
SECRET = record({"items": listed(KEY_TO_PATH)}, int32="defaultMode", flag="optional", text="secretName")
STORAGE_OS = record({"secretRef": LOCAL_REFERENCE}, text="fsType volumeName volumeNamespace", flag="readOnly")
VSPHERE_VOLUME = record(text="fsType storagePolicyID storagePolicyName volumePath!")
VOLUME = record(
    {
        "awsElasticBlockStore": AWS_ELASTIC_BLOCK_STORE,
        "azureDisk": AZURE_DISK,
        "azureFile": AZURE_FILE,
        "cephfs": CEPHFS,
        "cinder": CINDER,
        "configMap": CONFIG_MAP,
        "csi": CSI,
        "downwardAPI": DOWNWARD_API,
        "emptyDir": EMPTY_DIR,
        "ephemeral": EPHEMERAL,
        "fc": FC,
        "flexVolume": FLEX_VOLUME,
        "flocker": FLOCKER,
        "gcePersistentDisk": GCE_PERSISTENT_DISK,
        "gitRepo": GIT_REPO,
        "glusterfs": GLUSTERFS,
        "hostPath": HOST_PATH,
        "image": IMAGE,
        "iscsi": ISCSI,
        "nfs": NFS,
        "persistentVolumeClaim": PERSISTENT_VOLUME_CLAIM,
        "photonPersistentDisk": PHOTON_PERSISTENT_DISK,
        "portworxVolume": PORTWORX_VOLUME,
        "projected": PROJECTED,
        "quobyte": QUOBYTE,
        "rbd": RBD,
        "scaleIO": SCALE_IO,
        "secret": SECRET,
        "storageos": STORAGE_OS,
        "vsphereVolume": VSPHERE_VOLUME,
    },
    text="name!",
)


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
