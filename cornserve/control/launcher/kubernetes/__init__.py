"""Launcher for a Kubernetes cluster. Each executor group is a Deployment, whose pods Kubernetes keeps running."""

from cornserve.control.launcher.kubernetes.launcher import KubernetesLauncher
from cornserve.control.launcher.kubernetes.settings import ClusterSettings, ClusterSettingsError

__all__ = ["ClusterSettings", "ClusterSettingsError", "KubernetesLauncher"]
