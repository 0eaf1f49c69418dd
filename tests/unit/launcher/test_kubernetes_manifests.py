"""The objects of executor groups, as values."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cornserve.app.record import FailureReason
from cornserve.app.settings import ModelStorage
from cornserve.control.launcher.base import AppOwner, ExecutorCell, ExecutorGroup, GroupRefusedError, PodSettings
from cornserve.control.launcher.kubernetes import ClusterSettings, ClusterSettingsError
from cornserve.control.launcher.kubernetes.manifests import GroupManifests, render_group
from cornserve.task.spec import ExecutorSpec

LLM = ExecutorSpec(executor="llm", config={"model_id": "org/model"}, gpus=2)
ENCODER = ExecutorSpec(executor="encoder", config={"model_id": "org/model"}, has_tensors=True)


def settings(**changes: object) -> ClusterSettings:
    devices = {"cpu": {"image": "registry/cpu:1"}, "gpu": {"image": "registry/gpu:1"}}
    return ClusterSettings.model_validate({"instance": "cs", "secretName": "cs-secret", **devices} | changes)


def pod(group: ExecutorGroup, **changes: object) -> dict[str, Any]:
    spec: dict[str, Any] = render_group(group, settings(**changes)).deployment["spec"]["template"]["spec"]
    return spec


def executor(group: ExecutorGroup, **changes: object) -> dict[str, Any]:
    [container] = pod(group, **changes)["containers"]
    assert isinstance(container, dict)
    return container


def option(container: dict[str, Any], name: str) -> str:
    arguments = container["args"]
    value: str = arguments[arguments.index(name) + 1]
    return value


def with_storage(spec: ExecutorSpec, storage: dict[str, Any]) -> ExecutorGroup:
    return ExecutorGroup(spec, 1, PodSettings(storage=ModelStorage.model_validate(storage)))


class TestScaling:
    def test_the_number_of_replicas_is_not_part_of_the_hash(self) -> None:
        group = ExecutorGroup(LLM, 1)
        one, two = render_group(group, settings()), render_group(replace(group, replicas=2), settings())
        assert (one.replicas, two.replicas) == (1, 2)
        assert one.applied_hash == two.applied_hash
        assert one.deployment["spec"]["template"] == two.deployment["spec"]["template"]

    @pytest.mark.parametrize(
        "change",
        [
            {"gpu": {"image": "registry/gpu:2"}},
            {"drainSeconds": 1},
            {"priorityClassName": "high"},
        ],
    )
    def test_other_settings_are(self, change: dict[str, object]) -> None:
        group = ExecutorGroup(LLM, 1)
        assert render_group(group, settings()).applied_hash != render_group(group, settings(**change)).applied_hash

    def test_a_new_version_of_the_installation_replaces_no_pod(self) -> None:
        group = ExecutorGroup(LLM, 1)
        old, new = (render_group(group, settings(version=version)).deployment["spec"] for version in ("1", "2"))
        assert old == new

    def test_a_roll_out_has_spare_pods_or_not(self) -> None:
        def strategy(**changes: object) -> object:
            spec = render_group(ExecutorGroup(LLM, 1), settings(**changes)).deployment["spec"]
            return spec["strategy"]["rollingUpdate"]

        device = {"image": "registry/gpu:1", "maxSurge": 0, "maxUnavailable": 1}
        assert strategy() == {"maxSurge": 1, "maxUnavailable": 0}
        assert strategy(gpu=device) == {"maxSurge": 0, "maxUnavailable": 1}

    def test_a_roll_out_has_failed_only_after_the_time_to_load_a_model(self) -> None:
        spec = render_group(ExecutorGroup(LLM, 1), settings(startSeconds=7200)).deployment["spec"]
        assert spec["progressDeadlineSeconds"] > 7200


class TestOwners:
    def owners(self, manifests: GroupManifests) -> list[list[dict[str, Any]]]:
        objects = (manifests.deployment, manifests.service, manifests.disruption_budget)
        return [each["metadata"]["ownerReferences"] for each in objects]

    def test_every_object_belongs_to_every_app_that_needs_it(self) -> None:
        group = ExecutorGroup(LLM, 1, owners=(AppOwner("a", "uid-a"), AppOwner("b", "uid-b")))
        for references in self.owners(render_group(group, settings())):
            assert [(each["kind"], each["name"], each["uid"]) for each in references] == [
                ("App", "a", "uid-a"),
                ("App", "b", "uid-b"),
            ]
            assert not any(each["controller"] for each in references)

    def test_another_owner_replaces_no_pod(self) -> None:
        alone = render_group(ExecutorGroup(LLM, 1, owners=(AppOwner("a", "uid-a"),)), settings())
        shared = render_group(
            ExecutorGroup(LLM, 1, owners=(AppOwner("a", "uid-a"), AppOwner("b", "uid-b"))), settings()
        )
        assert alone.deployment["spec"] == shared.deployment["spec"]
        assert alone.applied_hash != shared.applied_hash


class TestPods:
    def test_gpus_are_requested_by_the_executor(self) -> None:
        resources = {"requests": {"cpu": "2"}, "limits": {"memory": "8Gi"}}
        container = executor(ExecutorGroup(LLM, 1), gpu={"image": "registry/gpu:1", "resources": resources})
        assert container["image"] == "registry/gpu:1"
        assert container["resources"]["limits"] == {"memory": "8Gi", "nvidia.com/gpu": "2"}
        assert container["resources"]["requests"] == {"cpu": "2", "nvidia.com/gpu": "2"}

    def test_devices_and_networks_for_rdma_are_requested_as_configured(self) -> None:
        device, network = {"rdma/hca": "1"}, {"k8s.v1.cni.cncf.io/networks": "rdma-net"}
        gpu = {"image": "registry/gpu:1", "resources": {"requests": device, "limits": device}}
        manifests = render_group(ExecutorGroup(LLM, 1), settings(gpu=gpu, podAnnotations=network, transport="ucx"))
        template = manifests.deployment["spec"]["template"]
        (container,) = template["spec"]["containers"]
        assert container["resources"]["limits"] == {"rdma/hca": "1", "nvidia.com/gpu": "2"}
        assert network.items() <= template["metadata"]["annotations"].items()
        assert option(container, "--transport") == "ucx"

    def test_without_gpus_the_same_executor_runs_on_cpus(self) -> None:
        container = executor(ExecutorGroup(LLM, 1), usesGpus=False)
        assert container["image"] == "registry/cpu:1"
        assert container["resources"] == {}
        assert executor(ExecutorGroup(ENCODER, 1))["resources"] == {}
        assert executor(ExecutorGroup(ENCODER, 1))["image"] == "registry/cpu:1"

    def test_gpus_of_a_type_are_requested_from_its_nodes(self) -> None:
        gpu = {"image": "registry/gpu:1", "nodeSelector": {"pool": "gpus"}, "tolerations": [{"key": "gpu"}]}
        types = {
            "h100": {"nodeSelector": {"product": "H100"}, "tolerations": [{"key": "h100"}]},
            "mi300": {"resource": "amd.com/gpu"},
        }
        h100 = pod(ExecutorGroup(LLM, 1, PodSettings(gpu_type="h100")), gpu=gpu, gpuTypes=types)
        mi300 = pod(ExecutorGroup(LLM, 1, PodSettings(gpu_type="mi300")), gpu=gpu, gpuTypes=types)
        assert h100["nodeSelector"] == {"pool": "gpus", "product": "H100"}
        assert h100["tolerations"] == [{"key": "gpu"}, {"key": "h100"}]
        assert h100["containers"][0]["resources"]["limits"] == {"nvidia.com/gpu": "2"}
        assert mi300["nodeSelector"] == {"pool": "gpus"}
        assert mi300["containers"][0]["resources"]["limits"] == {"amd.com/gpu": "2"}

    @pytest.mark.parametrize("uses_gpus", [True, False])
    def test_an_unknown_type_of_gpu_is_refused_with_the_known_types(self, uses_gpus: bool) -> None:
        group = ExecutorGroup(LLM, 1, PodSettings(gpu_type="b200"))
        with pytest.raises(GroupRefusedError, match=r"gpuType 'b200' of llm is unknown \(known: h100, l4\)") as refusal:
            render_group(group, settings(gpuTypes={"l4": {}, "h100": {}}, usesGpus=uses_gpus))
        assert refusal.value.reason is FailureReason.UNKNOWN_GPU_TYPE

    def test_a_known_type_of_gpu_is_not_needed_without_gpus(self) -> None:
        group = ExecutorGroup(LLM, 1, PodSettings(gpu_type="h100"))
        assert pod(group, usesGpus=False, gpuTypes={"h100": {}})["containers"][0]["image"] == "registry/cpu:1"

    def test_a_slowly_loading_model_is_not_restarted(self) -> None:
        probe = executor(ExecutorGroup(LLM, 1), startSeconds=1234)["startupProbe"]
        assert probe["periodSeconds"] * probe["failureThreshold"] >= 1234

    def test_the_grace_period_is_longer_than_the_drain(self) -> None:
        group = ExecutorGroup(LLM, 1)
        assert pod(group, drainSeconds=77)["terminationGracePeriodSeconds"] > 77
        assert option(executor(group, drainSeconds=77), "--drain-seconds") == "77"

    def test_executors_pull_by_the_selected_protocol(self) -> None:
        assert option(executor(ExecutorGroup(LLM, 1)), "--transport") == "auto"
        assert option(executor(ExecutorGroup(LLM, 1), transport="ucx"), "--transport") == "ucx"

    @pytest.mark.parametrize(("transport", "ports"), [("ucx", ["10000-14095"]), ("auto", []), ("tcp", [])])
    def test_ucx_listens_at_the_ports_that_network_policies_permit(self, transport: str, ports: list[str]) -> None:
        environment = executor(ExecutorGroup(LLM, 1), transport=transport)["env"]
        assert [each["value"] for each in environment if each["name"] == "UCX_TCP_PORT_RANGE"] == ports

    def test_pods_have_no_token_and_a_secret_for_their_group(self) -> None:
        spec = pod(ExecutorGroup(LLM, 1), tlsSecretName="cs-tls")
        assert spec["automountServiceAccountToken"] is False
        secrets = [volume["secret"] for volume in spec["volumes"] if "secret" in volume]
        assert secrets == [
            {"secretName": "cs-secret", "defaultMode": 0o440},
            {"secretName": "cs-tls", "defaultMode": 0o440},
        ]
        assert option(spec["containers"][0], "--tls") == "/run/secrets/cornserve-tls"

    @pytest.mark.parametrize(
        ("shared_memory", "volume", "directory"),
        [
            ({"type": "none"}, None, "/dev/shm"),
            (
                {"type": "persistentVolumeClaim", "claimName": "shm"},
                {"persistentVolumeClaim": {"claimName": "shm"}},
                "/dev/shm/cornserve",
            ),
            (
                {"type": "hostPath", "path": "/dev/shm/cs"},
                {"hostPath": {"path": "/dev/shm/cs", "type": "Directory"}},
                "/dev/shm/cornserve",
            ),
        ],
    )
    def test_shared_memory(self, shared_memory: dict[str, str], volume: dict[str, Any] | None, directory: str) -> None:
        spec = pod(ExecutorGroup(ENCODER, 1), sharedMemory=shared_memory)
        volumes = {each.pop("name"): each for each in spec["volumes"]}
        mounts = {each["mountPath"]: each["name"] for each in spec["containers"][0]["volumeMounts"]}
        assert volumes.get("shared-memory") == volume
        assert option(spec["containers"][0], "--shared-memory") == directory
        assert volumes[mounts["/dev/shm"]] == {"emptyDir": {"medium": "Memory", "sizeLimit": "1Gi"}}
        assert directory in mounts

    def test_members_of_a_cell_share_a_topology_domain(self) -> None:
        group = ExecutorGroup(LLM, 1, cell=ExecutorCell("cell-1", pods=2))
        manifests = render_group(group, settings(topologyKey="rack"))
        [term] = manifests.deployment["spec"]["template"]["spec"]["affinity"]["podAffinity"][
            "requiredDuringSchedulingIgnoredDuringExecution"
        ]
        assert term["topologyKey"] == "rack"
        selected = term["labelSelector"]["matchLabels"].items()
        assert selected <= manifests.deployment["spec"]["template"]["metadata"]["labels"].items()
        assert "affinity" not in pod(ExecutorGroup(LLM, 1))
        assert manifests.pod_group is None

    def test_members_of_a_cell_are_placed_together(self) -> None:
        def manifests(spec: ExecutorSpec) -> GroupManifests:
            group = ExecutorGroup(spec, 1, cell=ExecutorCell("cell-1", pods=2))
            return render_group(group, settings(cellPlacement="PodGroup", topologyKey="rack"))

        llm, encoder = manifests(LLM), manifests(ENCODER)
        assert llm.pod_group is not None
        assert llm.pod_group == encoder.pod_group
        assert llm.pod_group["spec"]["schedulingPolicy"] == {"gang": {"minCount": 2}}
        assert llm.pod_group["spec"]["schedulingConstraints"] == {"topology": [{"key": "rack"}]}
        for member in (llm, encoder):
            spec = member.deployment["spec"]["template"]["spec"]
            assert spec["schedulingGroup"] == {"podGroupName": llm.pod_group["metadata"]["name"]}
        assert render_group(ExecutorGroup(LLM, 1), settings(cellPlacement="PodGroup")).pod_group is None

    @pytest.mark.parametrize("name", ["Llm", "my_executor", "1st", "x" * 60])
    def test_names_that_kubernetes_refuses_are_refused(self, name: str) -> None:
        with pytest.raises(GroupRefusedError, match="lower case letters"):
            render_group(ExecutorGroup(ExecutorSpec(executor=name), 1), settings())


class TestStorage:
    def test_a_volume_is_mounted_read_only_in_place_of_the_id(self) -> None:
        group = with_storage(LLM, {"persistent_volume_claim": {"claim_name": "models", "path": "qwen"}})
        spec = pod(group)
        [mount] = [each for each in spec["containers"][0]["volumeMounts"] if each["name"] == "model"]
        assert mount["readOnly"] is True
        assert ExecutorSpec.model_validate_json(option(spec["containers"][0], "--spec")).config == {
            "model_id": f"{mount['mountPath']}/qwen"
        }
        assert "initContainers" not in spec

    def test_an_image_is_a_volume(self) -> None:
        spec = pod(with_storage(LLM, {"image": {"reference": "registry/qwen@sha256:1"}}))
        [volume] = [each for each in spec["volumes"] if each["name"] == "model"]
        assert volume["image"]["reference"] == "registry/qwen@sha256:1"

    def test_a_download_runs_before_the_executor_with_its_image_and_environment(self) -> None:
        token = {"name": "hf", "key": "token"}
        storage = {"download": {"cache_claim_name": "cache", "token_secret_key_ref": token}}
        spec = pod(with_storage(LLM, storage))
        [download], [container] = spec["initContainers"], spec["containers"]
        environment = {each["name"]: each.get("value") for each in container["env"]}
        downloading = {each["name"]: each.get("value") for each in download["env"]}
        assert download["image"] == container["image"]
        assert download["securityContext"] == container["securityContext"]
        assert environment["HF_HUB_OFFLINE"] == "1"
        assert "HF_TOKEN" not in environment
        assert "HF_TOKEN" in downloading
        assert "HF_HUB_OFFLINE" not in downloading
        assert environment["HF_HOME"] == downloading["HF_HOME"]
        assert ExecutorSpec.model_validate_json(option(container, "--spec")) == LLM

    def test_a_download_has_the_cpu_and_the_memory_of_the_executor(self) -> None:
        storage = ModelStorage.model_validate({"download": {"cache_claim_name": "cache"}})
        gpu = {"image": "registry/gpu:1", "resources": {"requests": {"cpu": "2", "memory": "16Gi"}}}

        def resources(**template: Any) -> Any:
            group = ExecutorGroup(LLM, 1, PodSettings(storage=storage, template={"spec": template}))
            [download] = pod(group, gpu=gpu)["initContainers"]
            return download["resources"]

        smaller = {"name": "executor", "resources": {"requests": {"memory": "8Gi"}}}
        own = {"name": "download", "resources": {"limits": {"memory": "1Gi"}}}
        assert resources() == {"requests": {"cpu": "2", "memory": "16Gi"}}
        assert resources(containers=[smaller]) == {"requests": {"cpu": "2", "memory": "8Gi"}}
        assert resources(initContainers=[own]) == own["resources"]


class TestPodTemplate:
    def rendered(self, template: dict[str, Any]) -> dict[str, Any]:
        group = ExecutorGroup(LLM, 1, PodSettings(template=template))
        merged: dict[str, Any] = render_group(group, settings()).deployment["spec"]["template"]
        return merged

    def test_lists_are_merged_by_their_keys(self) -> None:
        changes = {
            "containers": [
                {"name": "executor", "image": "registry/ours:1", "env": [{"name": "A", "value": "b"}]},
                {"name": "sidecar", "image": "registry/sidecar:1"},
            ],
            "volumes": [{"name": "tmp", "emptyDir": {"sizeLimit": "1Gi"}}, {"name": "extra", "emptyDir": {}}],
            "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists"}],
        }
        before, after = pod(ExecutorGroup(LLM, 1)), self.rendered({"spec": changes})["spec"]
        own, sidecar = after["containers"]
        assert own["image"] == "registry/ours:1"
        assert own["command"] == before["containers"][0]["command"]
        assert own["env"] == [*before["containers"][0]["env"], {"name": "A", "value": "b"}]
        assert sidecar["name"] == "sidecar"
        volumes = {each["name"]: each for each in after["volumes"]}
        assert volumes["tmp"]["emptyDir"] == {"sizeLimit": "1Gi"}
        assert volumes.keys() == {each["name"] for each in before["volumes"]} | {"extra"}
        assert after["tolerations"] == changes["tolerations"]

    def test_null_removes_a_field(self) -> None:
        spec = {"containers": [{"name": "executor", "securityContext": {"readOnlyRootFilesystem": None}}]}
        [container] = self.rendered({"spec": spec})["spec"]["containers"]
        assert "readOnlyRootFilesystem" not in container["securityContext"]

    def test_labels_that_select_the_pods_stay(self) -> None:
        labels = {"cornserve.ai/executor": "other", "team": "a"}
        metadata = self.rendered({"metadata": {"labels": labels, "annotations": {"a": "b"}}})["metadata"]
        assert metadata["labels"]["team"] == "a"
        assert metadata["labels"]["cornserve.ai/executor"] != "other"
        assert metadata["annotations"] == {"a": "b"}

    @pytest.mark.parametrize("field", ["command", "args", "ports", "startupProbe", "readinessProbe", "livenessProbe"])
    def test_fields_that_the_launcher_needs_are_refused(self, field: str) -> None:
        with pytest.raises(GroupRefusedError, match=f"{field} of the container 'executor' cannot be changed"):
            self.rendered({"spec": {"containers": [{"name": "executor", field: None}]}})

    @pytest.mark.parametrize(
        ("template", "problem"),
        [
            ({"containers": []}, "containers: is not a field of a pod template"),
            ({"spec": []}, "spec must be an object"),
            ({"metadata": "a"}, "metadata must be an object, not 'a'"),
            ({"metadata": {"labels": ["a"]}}, "metadata.labels must be an object"),
            ({"spec": {"containers": {}}}, "spec.containers must be a list"),
            ({"spec": {"containers": [{"image": "a"}]}}, "an element of containers has no name"),
            ({"spec": {"restartPolicy": "Never"}}, "spec.restartPolicy cannot be changed"),
            ({"spec": {"serviceAccountName": "cornserve-controller"}}, "spec.serviceAccountName cannot be changed"),
            ({"spec": {"volumes": [{"$patch": "delete", "name": "tmp"}]}}, "the directive \\$patch is not supported"),
        ],
    )
    def test_malformed_templates_are_refused(self, template: dict[str, Any], problem: str) -> None:
        with pytest.raises(GroupRefusedError, match=problem):
            self.rendered(template)

    def test_a_template_is_part_of_the_key(self) -> None:
        plain, changed = ExecutorGroup(LLM, 1), ExecutorGroup(LLM, 1, PodSettings(template={"spec": {}}))
        assert plain.key != changed.key


class TestSettings:
    def test_a_file_is_read(self, tmp_path: Path) -> None:
        file = tmp_path / "settings.yaml"
        file.write_text("instance: cs\nsecretName: secret\ncpu: {image: a}\ngpu: {image: b}\n")
        assert ClusterSettings.load(file).gpu.image == "b"

    @pytest.mark.parametrize(
        ("line", "problem"),
        [
            ("colour: red", "colour: is not a known field"),
            ("limits: [queue]", "does not set the limit queue"),
            ("cpu: {image: a, maxSurge: 0}", "maxSurge and maxUnavailable are both 0"),
            ("sharedMemory: {type: persistentVolumeClaim}", "claimName: is required"),
            ("[", "cannot read the cluster settings"),
        ],
    )
    def test_problems_name_the_field(self, tmp_path: Path, line: str, problem: str) -> None:
        file = tmp_path / "settings.yaml"
        file.write_text(f"instance: cs\nsecretName: secret\ngpu: {{image: b}}\n{line}\n")
        with pytest.raises(ClusterSettingsError, match=problem):
            ClusterSettings.load(file)
