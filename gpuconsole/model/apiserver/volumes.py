"""Schema of a pod's volumes (core/v1)."""

from gpuconsole.model.apiserver.containers import FIELD_REF, RESOURCE_FIELD
from gpuconsole.model.apiserver.schema import AMOUNTS, LABELS, a_flag, a_text, listed, quantity, record
from gpuconsole.model.apiserver.selectors import LABEL_SELECTOR, LOCAL_REFERENCE, POD_METADATA

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
