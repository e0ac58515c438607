"""deploy/kubernetes: manifests are valid, name options that there are, and let daemons drain."""

from __future__ import annotations

import shutil
import subprocess
from typing import Any

import kubernetes_validate
import pytest
import yaml

from node_monitor.options import NodeMonitorOptions
from scheduler.http.views import Demand
from scheduler.options import SchedulerOptions
from tests.support.documents import ROOT

HERE = ROOT / "deploy" / "kubernetes"
VERSION = "1.30"
"""Of Kubernetes: the oldest that the manifests are for."""
OF_OTHERS = ("cert-manager.io/v1", "keda.sh/v1alpha1")
"""Kinds that Kubernetes has no schemas of."""
OPTIONS: dict[str, type] = {"scheduler": SchedulerOptions, "node-monitor": NodeMonitorOptions}
OF_KUBERNETES = {"POD_IP"}
"""Variables that are no options."""


def documents(overlay: str, file: str) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all((HERE / overlay / file).read_text("utf-8")))


def kustomization(overlay: str) -> dict[str, Any]:
    (found,) = documents(overlay, "kustomization.yaml")
    return found


def manifests(overlay: str) -> list[dict[str, Any]]:
    """Those that are written there; patches are none."""
    files = [name for name in kustomization(overlay)["resources"] if name.endswith(".yaml")]
    return [document for name in files for document in documents(overlay, name)]


BASE, ELASTIC = manifests("base"), manifests("elastic")
KINDS = ("StatefulSet", "DaemonSet", "Deployment")
WORKLOADS = [manifest for manifest in [*BASE, *ELASTIC] if manifest["kind"] in KINDS]
OVERLAYS = sorted(path.parent.name for path in HERE.glob("*/kustomization.yaml"))


def container(workload: dict[str, Any]) -> dict[str, Any]:
    (found,) = workload["spec"]["template"]["spec"]["containers"]
    return found


def environment(workload: dict[str, Any]) -> dict[str, str]:
    return {one["name"]: one.get("value", "") for one in container(workload)["env"]}


def test_kustomizations_name_files_that_there_are() -> None:
    for overlay in OVERLAYS:
        wanted = kustomization(overlay)
        paths = [*wanted["resources"], *(patch["path"] for patch in wanted.get("patches", []) if "path" in patch)]
        assert all((HERE / overlay / path).exists() for path in paths)


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_manifests_are_valid_by_kubernetes_own_schemas(overlay: str) -> None:
    of_kubernetes = [one for one in manifests(overlay) if one["apiVersion"] not in OF_OTHERS]
    for manifest in of_kubernetes:
        kubernetes_validate.validate(manifest, VERSION, strict=True)


@pytest.mark.processes
@pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not installed")
@pytest.mark.parametrize("overlay", OVERLAYS)
def test_what_kustomize_makes_of_them_is_valid(overlay: str) -> None:
    made = subprocess.run(["kubectl", "kustomize", HERE / overlay], capture_output=True, text=True, check=True).stdout
    found = list(yaml.safe_load_all(made))
    assert len(found) >= len(BASE) - 1
    for manifest in found:
        if manifest["apiVersion"] not in OF_OTHERS:
            kubernetes_validate.validate(manifest, VERSION, strict=True)


@pytest.mark.parametrize("workload", WORKLOADS, ids=lambda workload: workload["metadata"]["name"])
class TestDaemons:
    def test_its_environment_is_options(self, workload: dict[str, Any]) -> None:
        fields = OPTIONS[container(workload)["name"]].__dataclass_fields__
        names = set(environment(workload)) - {"SPARROW_TOKEN"}
        assert {name.removeprefix("SPARROW_").lower() for name in names} <= set(fields)
        assert container(workload)["command"] == [f"sparrow-{container(workload)['name']}"]

    def test_kubernetes_names_no_services_in_variables_that_would_be_options(self, workload: dict[str, Any]) -> None:
        assert workload["spec"]["template"]["spec"]["enableServiceLinks"] is False

    def test_it_has_time_to_drain(self, workload: dict[str, Any]) -> None:
        grace_s = workload["spec"]["template"]["spec"]["terminationGracePeriodSeconds"]
        assert grace_s > float(environment(workload)["SPARROW_DRAIN_TIMEOUT_S"])

    def test_its_probes_ask_the_daemons_health(self, workload: dict[str, Any]) -> None:
        found = container(workload)
        paths = [found[f"{kind}Probe"]["httpGet"]["path"] for kind in ("startup", "liveness", "readiness")]
        assert paths == ["/livez", "/livez", "/readyz"]
        assert found["ports"] == [{"name": "http", "containerPort": OPTIONS[found["name"]].port}]

    def test_it_may_do_little(self, workload: dict[str, Any]) -> None:
        pod, own = workload["spec"]["template"]["spec"], container(workload)["securityContext"]
        assert pod["securityContext"]["runAsNonRoot"]
        assert pod["automountServiceAccountToken"] is False
        assert own["readOnlyRootFilesystem"]
        assert own["capabilities"] == {"drop": ["ALL"]}
        assert own["allowPrivilegeEscalation"] is False

    def test_what_it_mounts_is_there(self, workload: dict[str, Any]) -> None:
        volumes = {volume["name"]: volume for volume in workload["spec"]["template"]["spec"]["volumes"]}
        mounts = {mount["name"]: mount["mountPath"] for mount in container(workload)["volumeMounts"]}
        assert set(mounts) == set(volumes)
        if container(workload)["name"] == "scheduler":
            assert environment(workload)["SPARROW_TOKEN_FILE"] == f"{mounts['token']}/token"
            assert not volumes["token"]["secret"]["defaultMode"] & 0o027, "a daemon reads no token that others may"

    def test_no_file_has_the_token_where_tasks_run(self, workload: dict[str, Any]) -> None:
        """They run as the daemon's user; the daemon hides its environment."""
        if container(workload)["name"] == "node-monitor":
            assert not [one for one in workload["spec"]["template"]["spec"]["volumes"] if "secret" in one]
            (token,) = [one for one in container(workload)["env"] if one["name"] == "SPARROW_TOKEN"]
            assert token["valueFrom"] == {"secretKeyRef": {"name": "sparrow-token", "key": "token"}}

    def test_a_policy_selects_its_pods_and_port(self, workload: dict[str, Any]) -> None:
        labels = workload["spec"]["template"]["metadata"]["labels"]
        policies = [one["spec"] for one in BASE if one["kind"] == "NetworkPolicy"]
        (own,) = [one for one in policies if one["podSelector"]["matchLabels"] == labels]
        ports = {port["port"] for rule in own["ingress"] for port in rule["ports"]}
        assert ports == {container(workload)["ports"][0]["containerPort"]}
        peers = [one.get("podSelector") for rule in own["ingress"] for one in rule["from"]]
        assert {"matchLabels": {"app.kubernetes.io/name": "sparrow-scheduler"}} in peers, "GET /v1/schedulers asks it"
        assert workload["spec"]["selector"]["matchLabels"] == labels


def test_node_monitors_find_all_schedulers_those_that_are_not_ready_too() -> None:
    (service,) = [one for one in BASE if one["kind"] == "Service"]
    schedulers, node_monitors, elastic = WORKLOADS
    source = environment(node_monitors)["SPARROW_SCHEDULER"]
    assert source == environment(elastic)["SPARROW_SCHEDULER"]
    assert source == f"dns:{service['metadata']['name']}:{service['spec']['ports'][0]['port']}"
    assert schedulers["spec"]["serviceName"] == service["metadata"]["name"]
    assert service["spec"]["selector"] == schedulers["spec"]["template"]["metadata"]["labels"]
    assert service["spec"]["publishNotReadyAddresses"]
    assert service["spec"]["clusterIP"] == "None"


def test_no_two_schedulers_are_evicted_at_a_time() -> None:
    (budget,) = [one for one in BASE if one["kind"] == "PodDisruptionBudget"]
    assert budget["spec"]["maxUnavailable"] == 1 < WORKLOADS[0]["spec"]["replicas"]
    assert budget["spec"]["selector"] == WORKLOADS[0]["spec"]["selector"]


def test_the_certificate_is_a_daemons_for_the_names_that_are_dialled() -> None:
    certificates = {one["metadata"]["name"]: one["spec"] for one in manifests("tls") if one["kind"] == "Certificate"}
    daemons = certificates["sparrow-daemons"]
    assert daemons["subject"]["organizations"] == ["cluster"]
    assert {"server auth", "client auth"} <= set(daemons["usages"])
    for file in ("schedulers.yaml", "node-monitors.yaml"):
        (patch,) = documents("tls", file)
        (volume,) = patch["spec"]["template"]["spec"]["volumes"]
        assert volume["secret"]["secretName"] == daemons["secretName"]
        fields = OPTIONS[container(patch)["name"]].__dataclass_fields__
        options = {name.removeprefix("SPARROW_").lower() for name in set(environment(patch)) - OF_KUBERNETES}
        assert {"tls_cert", "tls_key", "tls_ca"} <= options <= set(fields)
    dialled = environment(patch)["SPARROW_SCHEDULER"].split(",")
    domains = {f"*.{address.rpartition(':')[0].partition('.')[2]}" for address in dialled}
    assert domains < set(daemons["dnsNames"])
    assert len(dialled) == WORKLOADS[0]["spec"]["replicas"]


def test_the_autoscalers_ask_each_scheduler_and_scale_what_there_is() -> None:
    schedulers, _, elastic = WORKLOADS
    (scaled,) = [one["spec"] for one in ELASTIC if one["kind"] == "ScaledObject"]
    (horizontal,) = documents("elastic", "hpa.yaml")
    kubernetes_validate.validate(horizontal, VERSION, strict=True)
    for target in (scaled["scaleTargetRef"], horizontal["spec"]["scaleTargetRef"]):
        assert (target["kind"], target["name"]) == (elastic["kind"], elastic["metadata"]["name"])
    name, service = schedulers["metadata"]["name"], schedulers["spec"]["serviceName"]
    urls = [trigger["metadata"]["url"] for trigger in scaled["triggers"]]
    numbers = range(schedulers["spec"]["replicas"])
    assert urls == [f"http://{name}-{number}.{service}.sparrow:20503/v1/demand" for number in numbers]
    names = [trigger["name"] for trigger in scaled["triggers"]]
    assert scaled["advanced"]["scalingModifiers"]["formula"] == " + ".join(names)
    assert {trigger["metadata"]["valueLocation"] for trigger in scaled["triggers"]} <= set(Demand.__struct_fields__)
    assert scaled["advanced"]["scalingModifiers"]["target"] == container(elastic)["resources"]["limits"]["cpu"]


def test_no_command_that_is_proposed_shows_the_secret_to_who_lists_processes() -> None:
    texts = [path.read_text("utf-8") for path in [*HERE.rglob("*.yaml"), ROOT / "docs" / "deploy.md"]]
    assert sum("create secret" in text for text in texts) == 2
    assert not any("--from-literal" in text for text in texts)
