"""Volcano's tables of the framework: arguments, demands for closeness, nodes where preemption cannot help."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from gpuconsole.model.volcano import NetworkTopology
from gpuconsole.scheduling.volcano.api.hyper_nodes import ROOT_NAME, convert_soft_to_hard, resolve_tier_names
from gpuconsole.scheduling.volcano.api.job import FitError, FitErrors, JobInfo, PredicateCode, SubJobInfo
from gpuconsole.scheduling.volcano.config import VolcanoArguments
from tests.conformance.tables import Case, Check, Table, compare
from tests.conformance.volcano import common, objects

Document = Mapping[str, Any]


def _argument(method: str) -> Check:
    def check(table: Table, case: Case) -> Sequence[str]:
        arguments = VolcanoArguments(case.input.get("arg"))
        got = getattr(arguments, method)(case.input.get("key", ""), case.input["baseValue"])
        return list(compare("value", got, case.want["expectValue"]))

    return check


def _arguments_of_action(table: Table, case: Case) -> Sequence[str]:
    known = common.configuration({"configurations": case.input.get("configurations")})
    got = dict(known.arguments_of(case.input["action"]))
    return list(compare("arguments", got, case.want.get("expectedArguments") or {}))


def _job(document: Document) -> JobInfo:
    """A job of which only the demands are known."""
    job = JobInfo("ns/job")
    spec = (document.get("PodGroup") or {}).get("spec") or {}
    job.network_topology = objects.topology(spec.get("networkTopology"))
    for uid, sub_job in (document.get("SubJobs") or {}).items():
        job.sub_jobs[uid] = SubJobInfo(job.uid, uid, job.uid)
        job.sub_jobs[uid].network_topology = objects.topology(sub_job.get("NetworkTopology"))
    return job


def _adjusted(table: Table, case: Case) -> Sequence[str]:
    return list(_adjusting(case))


def _adjusting(case: Case) -> Iterator[str]:
    for uid, document in case.input["jobs"].items():
        job, want = _job(document), _job(case.want["expectedJobs"][uid])
        resolve_tier_names(job, case.input.get("nameMap") or {})
        yield from compare(f"demand of {uid}", job.network_topology, want.network_topology)
        for name, sub_job in want.sub_jobs.items():
            yield from compare(f"demand of {name}", job.sub_jobs[name].network_topology, sub_job.network_topology)


def _hardened(table: Table, case: Case) -> Sequence[str]:
    """Names become tiers, then what is soft becomes hard."""
    differences: list[str] = []
    for document in case.input["jobs"].values():
        job = _job(document)
        resolve_tier_names(job, case.input.get("nameMap") or {})
        convert_soft_to_hard(job, case.input["hyperNodes"][ROOT_NAME]["tier"])
        differences += compare("demand", _demand(job.network_topology), _wanted(case))
    return differences


def _wanted(case: Case) -> tuple[str, int | None]:
    return case.want.get("wantJobMode") or "", case.want.get("wantJobTier")


def _demand(topology: NetworkTopology | None) -> tuple[str, int | None]:
    return ("", None) if topology is None else (topology.mode, topology.highest_tier)


def _converted(table: Table, case: Case) -> Sequence[str]:
    """What is soft becomes hard, in a job and in one sub-job of each policy."""
    job = _job({"PodGroup": {"spec": {"networkTopology": case.input.get("jobNetworkTopology")}}})
    policies = case.input.get("subGroupPolicies") or ()
    for policy in policies:
        sub_job = SubJobInfo(job.uid, policy["name"], job.uid, objects.sub_group(policy))
        job.sub_jobs[policy["name"]] = sub_job
    convert_soft_to_hard(job, table.fixtures["maxTier"])
    got = [_demand(job.sub_jobs[policy["name"]].network_topology) for policy in policies]
    modes = case.want.get("wantSubGroupPolicyModes") or ()
    tiers = case.want.get("wantSubGroupPolicyTiers") or ()
    hard = job.contains_hard_topology
    return [
        *compare("demand", _demand(job.network_topology), _wanted(case)),
        *compare("demands of parts", got, list(zip(modes, tiers, strict=True))),
        *compare("is hard", hard, case.want.get("wantContainsHardTopology", False)),
    ]


def _helpful(table: Table, case: Case) -> Sequence[str]:
    """Nodes that are left after `allocate` noted why tasks do not fit."""
    session = common.opened(case.document["session"], case.input)
    tasks = {task.uid: task for job in session.jobs.values() for task in job.tasks.values()}
    for uid, document in (case.input.get("status") or {}).items():
        errors = FitErrors()
        for status in document["Status"]:
            errors.set_error(
                document["NodeName"], FitError.from_reasons(PredicateCode(status["Code"]), status["Reason"])
            )
        session.jobs[tasks[uid].job].node_fit_errors[uid] = errors
    got = {
        uid: [node.name for node in session.nodes_where_preemption_may_help(tasks[uid])] for uid in case.want["want"]
    }
    return list(compare("nodes", got, {uid: sorted(names) for uid, names in case.want["want"].items()}))


PREFIX = "volcano/scheduler_framework"
CHECKS: dict[str, Check] = {
    f"{PREFIX}/TestArgumentsGetInt": _argument("integer"),
    f"{PREFIX}/TestArgumentsGetFloat64": _argument("number"),
    f"{PREFIX}/TestArgumentsGetBool": _argument("flag"),
    f"{PREFIX}/TestArgumentsGetString": _argument("text"),
    f"{PREFIX}/TestGetArgOfActionFromConf": _arguments_of_action,
    f"{PREFIX}/TestSession_adjustNetworkTopologySpec": _adjusted,
    f"{PREFIX}/TestAdjustNetworkTopologySpec_SoftToHardConversion": _hardened,
    f"{PREFIX}/TestConvertSoftToHardTopology": _converted,
    f"{PREFIX}/TestFilterOutPreemptMayNotHelpNodes": _helpful,
}
