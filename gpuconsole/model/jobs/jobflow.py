"""flow.volcano.sh: JobTemplates, and the JobFlows that create Jobs from them in order."""

from gpuconsole.model.apiserver.volcano.flows import check_job_flow
from gpuconsole.model.apiserver.volcano.objections import report
from gpuconsole.model.apiserver.volcano.shapes import JOB_FLOW, fits
from gpuconsole.model.clock import Time
from gpuconsole.model.documents.names import unique
from gpuconsole.model.documents.reader import Reader
from gpuconsole.model.job import Job, JobPhase
from gpuconsole.model.job_rules import Flow, FlowRules, TemplateRules
from gpuconsole.model.jobs.common import job
from gpuconsole.model.jobs.volcano import job_parts

MOST_FLOWS = 1000
RETAIN = ("retain", "delete")
_jobflow_PHASES = {"Succeed": JobPhase.SUCCEEDED, "Failed": JobPhase.FAILED, "Running": JobPhase.RUNNING}
"""Phase in its status (flow.volcano.sh/v1alpha1 Phase) → phase of the job."""


def job_template(reader: Reader, now: Time) -> Job:
    """Read a JobTemplate: the spec of a Volcano Job, which only JobFlows run."""
    tasks, volcano = job_parts(reader)
    rules = TemplateRules(volcano=volcano)
    return job(reader, now, "JobTemplate", tasks, queue="", rules=rules, backoff_limit=volcano.max_retry)


def job_flow(reader: Reader, now: Time) -> Job:
    """Read a JobFlow: JobTemplates of its namespace, and their dependencies."""
    spec = reader.mapping("spec")
    spec.only("flows", "jobRetainPolicy")
    flows = tuple(_flow(place) for place in spec.items("flows", MOST_FLOWS))
    unique(spec, "flows", [flow.template for flow in flows], "name")
    if fits(reader.value, JOB_FLOW):
        report(reader.report, reader.path, check_job_flow(reader.value))
    rules = FlowRules(flows=flows, deletes=spec.one_of("jobRetainPolicy", "retain", RETAIN) == "delete")
    state = _jobflow_PHASES.get(reader.mapping("status").mapping("state").text("phase"), JobPhase.PENDING)
    return job(reader, now, "JobFlow", (), queue="", rules=rules, phase=state)


def _flow(place: Reader) -> Flow:
    place.only("name", "dependsOn", "patch")
    needs = place.mapping("dependsOn")
    needs.only("targets", "probe")
    return Flow(place.required("name"), needs.texts("targets", MOST_FLOWS))
