"""Where the API server keeps what the live tests look at."""

from tests.live.identities import TEAM

JOBS = f"/apis/batch/v1/namespaces/{TEAM}/jobs"
PODS = f"/api/v1/namespaces/{TEAM}/pods"
KUEUE = "/apis/kueue.x-k8s.io/v1beta2"
CLUSTER_QUEUES = f"{KUEUE}/clusterqueues"
LOCAL_QUEUES = f"{KUEUE}/namespaces/{TEAM}/localqueues"
WORKLOADS = f"{KUEUE}/namespaces/{TEAM}/workloads"
