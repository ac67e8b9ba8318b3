"""Schema of a container in a pod (core/v1)."""

from gpuconsole.model.apiserver.schema import (
    AMOUNTS,
    INT_32,
    INT_OR_TEXT,
    Empty,
    a_flag,
    a_text,
    listed,
    quantity,
    record,
)

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
